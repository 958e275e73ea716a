package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/cluster/clients"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

func (m *Member) clientsConfig() clients.Config {
	return clients.Config{
		Handlers: m.cfg.Clients, Core: m.core, Lifetime: m.lifetime, Stopped: m.stopped, Queue: m.replica.Queue(), Logger: m.log,
		Renew: m.cfg.Commands.RenewClients, Addresses: m.memberAddresses, Attached: &m.metrics.Clients,
		Spend: m.replica.Spend, IsSpent: m.replica.IsSpent,
	}
}

// serveClient implements transport.Config.Client.
func (m *Member) serveClient(c *transport.ClientConn) {
	if number := c.Peer().FurtherGroup; number != 0 {
		m.groups.serveClient(number, c)
		return
	}
	m.clients.Serve(c)
}

// clientsRefused implements transport.Config.ClientsRefused. Clients are served from the first status on.
func (m *Member) clientsRefused(furtherGroup uint32) (transport.Reason, string) {
	switch s := m.replica.Status(); {
	case s == nil:
		return transport.ReasonNoClients, "this member has not found its group yet: ask another one, or retry"
	case s.Level < wire.LevelClient:
		return transport.ReasonNoClients, fmt.Sprintf("the group has feature level %d, and clients need %d: upgrade every member first", s.Level, wire.LevelClient)
	case furtherGroup != 0:
		return m.groups.clientsRefused(furtherGroup)
	}
	return "", ""
}

// serveClient serves the connection of a client that uses a further group, on the goroutine of the connection.
func (g *Groups) serveClient(number uint32, c *transport.ClientConn) {
	h := g.started(number)
	if h == nil {
		return // it has ended since clientsRefused
	}
	defer context.AfterFunc(h.lifetime, func() { c.Close(context.Cause(h.lifetime)) })()
	h.clients.Serve(c)
}

// clientsRefused returns why clients of a further group are not served.
func (g *Groups) clientsRefused(number uint32) (transport.Reason, string) {
	switch h := g.started(number); {
	case g.defaults.Status().Directory.Dropped(number):
		return transport.ReasonNoGroup, fmt.Sprintf("group %d", number)
	case h == nil || !h.used.Load():
		return transport.ReasonNoClients, fmt.Sprintf("this member does not have group %d yet: ask another one, or retry", number)
	}
	return "", ""
}

// memberAddresses returns the addresses at which clients find members.
func (m *Member) memberAddresses() (addresses []string) {
	for _, p := range m.Status().Members {
		if p.Addr != "" && len(addresses) < maxMembersSent && !slices.Contains(addresses, p.Addr) {
			addresses = append(addresses, p.Addr)
		}
	}
	return addresses
}
