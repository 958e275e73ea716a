package consulapi

import (
	"context"
	"net/http"
	"time"

	"github.com/conclave-go/conclave"
)

// statusLeader answers with the address of the leader of the group that is served, "" if none is known. It is this
// node's view, as in Consul.
func (c *call) statusLeader(string) error {
	if err := c.local("status"); err != nil {
		return err
	}
	status, addr := c.node.Status(), ""
	leader := c.groupInfo(status).Leader
	for _, m := range status.Members {
		if m.ID == leader {
			addr = m.Addr
		}
	}
	return c.answer(addr)
}

// statusPeers answers with the addresses of the voters.
func (c *call) statusPeers(string) error {
	if err := c.local("status"); err != nil {
		return err
	}
	peers := []string{}
	for _, m := range c.node.Status().Members {
		if m.Role == conclave.Voter {
			peers = append(peers, m.Addr)
		}
	}
	return c.answer(peers)
}

// local begins a read of what this node knows without asking the group. As in Consul it never blocks, whatever
// ?index is.
func (c *call) local(resource string) error { return c.authorize(Read, resource) }

// serfMember is a node as Serf describes it.
type serfMember struct {
	Name, Addr string
	Port       int
	Tags       map[string]string
	Status     int // 1: alive, 4: failed
	serfVersions
}

// serfVersions are the protocols of Serf that a node speaks. Clients with strict models require them, as Java's
// consul-client does. None is spoken here; these are those of a Consul agent.
type serfVersions struct {
	ProtocolMin, ProtocolMax, ProtocolCur int
	DelegateMin, DelegateMax, DelegateCur int
}

func (c *call) serfMember(names nodes, m conclave.Member) serfMember {
	host, port := hostPort(m.Addr)
	s := serfMember{names.name(m.ID), host, port, map[string]string{
		"role": "consul", "dc": c.opts.Datacenter, "id": nodeID(m.ID),
	}, 1, serfVersions{1, 5, 2, 2, 5, 4}}
	if !m.Alive && m.ID != names.status.ID {
		s.Status = 4
	}
	return s
}

// agentMembers lists the nodes as this one's failure detector sees them. They are one segment, "", which is all of
// them: the command "consul members" asks for "_all".
func (c *call) agentMembers(string) error {
	if segment := c.query.Get("segment"); segment != "" && segment != "_all" {
		return invalid("query parameter \"segment\": want none, got %q: there are no segments", shorten(segment))
	}
	names := c.nodes()
	if err := c.local("agent/" + names.own()); err != nil {
		return err
	}
	found := []serfMember{}
	for _, m := range names.status.Members {
		found = append(found, c.serfMember(names, m))
	}
	return c.answer(found)
}

// agentSelf describes this node.
func (c *call) agentSelf(string) error {
	names := c.nodes()
	if err := c.local("agent/" + names.own()); err != nil {
		return err
	}
	var own conclave.Member
	for _, m := range names.status.Members {
		if m.ID == names.status.ID {
			own = m
		}
	}
	type config struct {
		Datacenter, NodeName, NodeID string
		Revision, Version            string // of Consul, which this is not: ""
		Server                       bool
		SessionTTLMin                time.Duration // nanoseconds, as all durations of Consul's API
	}
	return c.answer(struct {
		Config config
		Member serfMember
	}{
		config{Datacenter: c.opts.Datacenter, NodeName: names.own(), NodeID: nodeID(names.status.ID), Server: true, SessionTTLMin: c.opts.SessionTTLMin},
		c.serfMember(names, own),
	})
}

// healthCheck is a check as Consul's API has it.
type healthCheck struct {
	Node, CheckID, Name, Status, Notes, Output string
	ServiceID, ServiceName                     string
	ServiceTags                                []string
	Type                                       string
}

// health describes a check. What the group does not know is known of this node's.
func (c *call) health(names nodes, i conclave.CheckInfo) healthCheck {
	h := healthCheck{
		Node: names.name(i.Node), CheckID: checkID(i.Name), Name: i.Name, Status: i.State.String(),
		ServiceTags: []string{}, Type: "ttl",
	}
	if i.Name == gossip {
		h.Name, h.Type = "Serf Health Status", ""
	} else if known, ok := c.checks.get(c.group, i.Name); ok && i.Node == names.status.ID {
		h.Name, h.Notes, h.Output = known.name, known.notes, known.output
	}
	return h
}

// agentChecks lists the checks of this node, without the built-in ones, as in Consul.
func (c *call) agentChecks(string) error {
	names := c.nodes()
	if err := c.local("node/" + names.own()); err != nil {
		return err
	}
	return c.gatheredChecks(func(ctx context.Context) error {
		found := make(map[string]healthCheck)
		err := c.ownChecks(ctx, func(i conclave.CheckInfo) {
			if !isBuiltIn(i.Name) {
				found[i.Name] = c.health(names, i)
			}
		})
		if err != nil {
			return err
		}
		body, err := encodeNamed(c, found)
		if err != nil {
			return err
		}
		return c.write(http.StatusOK, "application/json", body)
	})
}

// gatheredChecks makes an answer that lists checks. Their notes and outputs are those of clients, of
// some MiB as JSON, so it is a listing like any other.
func (c *call) gatheredChecks(gather func(context.Context) error) error {
	return c.gathered(func() error {
		ctx, cancel := c.patience()
		defer cancel()
		return c.collect(ctx, func() error { return gather(ctx) })
	})
}
