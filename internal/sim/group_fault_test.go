package sim

import (
	"time"

	"github.com/conclave-go/conclave/cluster/core"
)

// Faults of programs and leaders in further groups. Those of members, networks and disks are faults of all groups at once.

// pursuePlans has operators carry out their plans.
func (sim *simulation) pursuePlans() {
	for _, p := range sim.plans {
		p.pursue()
	}
}

// injectGroupFault injects a fault in one of the further groups, at times.
func (sim *simulation) injectGroupFault() {
	groups := sim.groups()[1:]
	if len(groups) == 0 {
		return
	}
	g := groups[sim.extraRNG.IntN(len(groups))]
	if g.rest.all {
		return // see injectQuietFault
	}
	m := g.members[g.rng.IntN(len(g.members))]
	if m.process == nil {
		return
	}
	p := m.process.program
	switch g.rng.IntN(9) {
	case 0:
		if to := uint64(g.rng.IntN(len(g.members) + 1)); g.faults.transfers {
			m.process.post(func(c *core.Core) {
				if c.Status().Leads {
					c.Transfer(to, make(chan error, 1))
				}
			})
		}
	case 1:
		if g.faults.missedRenewals {
			p.mutedUntil = g.now + g.between(time.Second, incarnationTTL)
			g.trace("member %d pauses its renewals", m.n)
			g.reportDeath(m)
		}
	case 2:
		if g.faults.forcedCloses {
			g.forceCloseAny(p)
		}
	case 3:
		g.resize(p)
		g.reportRandomLiveness(p)
	case 4:
		if g.faults.crashes && g.rng.IntN(2) == 0 {
			for _, m := range sim.members {
				m.crash("power loss of all")
				sim.faults.restartLater(m)
			}
		}
	}
}

// disconnectGroups has the other members notice in all further groups that the connections to a member have broken.
func (sim *simulation) disconnectGroups(m *simMember) {
	sim.connectionsLost(m.n)
	for _, g := range sim.groups()[1:] {
		for _, other := range g.members {
			if proc := other.process; proc != nil {
				proc.after(time.Millisecond, func() { proc.post(func(c *core.Core) { c.PeerDisconnected(m.id()) }) })
			}
		}
		if g.faults.checks {
			g.reportCrash(g.members[m.n])
		}
	}
}

// healGroups ends the faults of further groups.
func (sim *simulation) healGroups() {
	for _, g := range sim.groups()[1:] {
		for _, m := range g.remaining() {
			if m.process != nil {
				m.process.program.mutedUntil = 0
			}
		}
	}
}
