package consulapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/conclave-go/conclave"
)

// catalogEntry is a node as Consul's catalog has it.
type catalogEntry struct {
	ID, Node, Address, Datacenter string
	TaggedAddresses, Meta         map[string]string
}

func (c *call) catalogEntry(names nodes, m conclave.Member) catalogEntry {
	host, _ := hostPort(m.Addr)
	return catalogEntry{
		nodeID(m.ID), names.name(m.ID), host, c.opts.Datacenter,
		map[string]string{}, map[string]string{"role": m.Role.String()},
	}
}

// catalogDatacenters lists the datacenters: this one.
func (c *call) catalogDatacenters(string) error {
	if err := c.local("status"); err != nil {
		return err
	}
	return c.answer([]string{c.opts.Datacenter})
}

// catalogNodes lists the nodes, as this one sees them.
func (c *call) catalogNodes(string) error {
	if err := c.awaitList("node_prefix/"); err != nil {
		return err
	}
	names := c.nodes()
	found := []catalogEntry{}
	for _, m := range names.status.Members {
		found = append(found, c.catalogEntry(names, m))
	}
	return c.answer(found)
}

// catalogNode describes a node and its services, of which there are none. As in Consul the answer for a node that
// does not exist is null.
func (c *call) catalogNode(name string) error {
	if name == "" {
		return invalid("Missing node name")
	}
	if err := c.awaitList("node/" + name); err != nil {
		return err
	}
	names := c.nodes()
	m, ok := names.find(name)
	if !ok {
		return c.answer(nil)
	}
	return c.answer(struct {
		Node     catalogEntry
		Services struct{}
	}{Node: c.catalogEntry(names, m)})
}

// healthNode lists the checks of a node.
func (c *call) healthNode(name string) error {
	if name == "" {
		return invalid("Missing node name")
	}
	if err := c.awaitList("node/" + name); err != nil {
		return err
	}
	return c.healthOf(func(ctx context.Context, names nodes, do func(conclave.CheckInfo)) error {
		if m, ok := names.find(name); ok {
			return c.checksOf(ctx, m.ID, do)
		}
		return nil
	})
}

// healthState lists the checks of all nodes that have a state, or any.
func (c *call) healthState(state string) error {
	if state != "any" {
		if _, err := stateOf(state); err != nil {
			return err
		}
	}
	if err := c.awaitList("node_prefix/"); err != nil {
		return err
	}
	return c.healthOf(func(ctx context.Context, _ nodes, do func(conclave.CheckInfo)) error {
		return each(c.group.Checks(ctx), func(i conclave.CheckInfo) bool {
			if state == "any" || state == i.State.String() {
				do(i)
			}
			return true
		})
	})
}

func (c *call) healthOf(list func(context.Context, nodes, func(conclave.CheckInfo)) error) error {
	return c.gatheredChecks(func(ctx context.Context) error {
		names, found := c.nodes(), []healthCheck{}
		if err := list(ctx, names, func(i conclave.CheckInfo) {
			if i.Name != conclave.ProcessCheck { // Consul has none
				found = append(found, c.health(names, i))
			}
		}); err != nil {
			return err
		}
		body, err := encodeAll(c, slices.Values(found))
		if err != nil {
			return err
		}
		return c.write(http.StatusOK, "application/json", body)
	})
}
