package consulapi

import (
	"fmt"
	"net"
	"strconv"

	"github.com/conclave-go/conclave"
)

// serfHealth is Consul's name of the built-in check, gossip conclave's. Consul has none like
// the other one, which is not listed, and which a session may depend on by its name.
const (
	serfHealth = "serfHealth"
	gossip     = "gossip"
)

// isBuiltIn reports whether a check, by conclave's name, is not one that clients register.
func isBuiltIn(name string) bool { return name == gossip || name == conclave.ProcessCheck }

// checkID is a check's name in Consul's API.
func checkID(name string) string {
	if name == gossip {
		return serfHealth
	}
	return name
}

// nodes has the names of the group's nodes at one moment.
type nodes struct {
	status conclave.Status
	byID   map[conclave.MemberID]string
}

func (s *server) nodes() nodes {
	n := nodes{status: s.node.Status(), byID: make(map[conclave.MemberID]string)}
	count := make(map[string]int)
	for _, m := range n.status.Members {
		count[m.Name]++
	}
	for _, m := range n.status.Members {
		if m.Name != "" && count[m.Name] == 1 {
			n.byID[m.ID] = m.Name
		}
	}
	return n
}

// name returns the name of a node: that of its member if it has one of its own, and
// otherwise its ID.
func (n nodes) name(id conclave.MemberID) string {
	if name, ok := n.byID[id]; ok {
		return name
	}
	return id.String()
}

// nodeID is a member's ID in the form of Consul's: a UUID, that begins with the digits of the member's ID.
func nodeID(id conclave.MemberID) string {
	return fmt.Sprintf("%08x-%04x-%04x-8000-000000000000", uint64(id)>>32, uint64(id)>>16&0xffff, uint64(id)&0xffff)
}

// own returns the name of this node.
func (n nodes) own() string { return n.name(n.status.ID) }

// find returns the member with that name.
func (n nodes) find(name string) (conclave.Member, bool) {
	for _, m := range n.status.Members {
		if n.name(m.ID) == name {
			return m, true
		}
	}
	return conclave.Member{}, false
}

// hostPort splits a member's address. What is no port is 0.
func hostPort(addr string) (host string, port int) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, 0
	}
	port, _ = strconv.Atoi(text)
	return host, port
}
