package cluster

import (
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/cluster/clients"
	"github.com/conclave-go/conclave/internal/wire"
)

func (m *Member) clientsConfig() clients.Config {
	return clients.Config{
		Handlers: m.cfg.Clients, Core: m.core, Lifetime: m.lifetime, Stopped: m.stopped, Queue: m.replica.Queue(), Logger: m.log,
		Renew: m.cfg.Commands.RenewClients, Addresses: m.memberAddresses, Attached: &m.metrics.Clients,
		Spend: m.replica.Spend, IsSpent: m.replica.IsSpent,
	}
}

// clientsRefused implements transport.Config.ClientsRefused. Clients are served from the first status on.
func (m *Member) clientsRefused() string {
	switch s := m.replica.Status(); {
	case s == nil:
		return "this member has not found its group yet: ask another one, or retry"
	case s.Level < wire.LevelClient:
		return fmt.Sprintf("the group has feature level %d, and clients need %d: upgrade every member first", s.Level, wire.LevelClient)
	}
	return ""
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
