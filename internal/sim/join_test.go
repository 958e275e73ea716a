package sim

import (
	"bytes"
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Members that join, are lost permanently and are removed by others.

// addNewcomers adds members that have not joined yet.
func (sim *simulation) addNewcomers(n int) {
	for range n {
		m := newSimMember(sim, len(sim.members))
		m.absent = true
		sim.members = append(sim.members, m)
	}
}

// publicKeyOf returns the public key of a member.
func publicKeyOf(id uint64) []byte { return bytes.Repeat([]byte{byte(id)}, 32) }

// changeMembership has a member join, leave, or be removed by another one or lost; or
// changes the group's settings.
func (sim *simulation) changeMembership() {
	p := sim.registeredProgram()
	if p == nil {
		return
	}
	switch sim.extraRNG.IntN(5) {
	case 0, 1:
		sim.admit(p)
	case 2:
		sim.losePermanently()
	case 3:
		sim.configure(p)
	case 4:
		if m := sim.members[sim.extraRNG.IntN(len(sim.members))]; m.process != nil {
			sim.requestLeave(m.process.program)
		}
	}
}

// registeredProgram returns a program that can submit commands; nil: there is none.
func (sim *simulation) registeredProgram() *program {
	for i, start := 0, sim.extraRNG.IntN(len(sim.members)); i < len(sim.members); i++ {
		m := sim.members[(start+i)%len(sim.members)]
		if m.process != nil && m.process.program.registered && !m.process.program.leaving {
			return m.process.program
		}
	}
	return nil
}

// admit has a program admit the next newcomer, which starts once that is committed.
func (sim *simulation) admit(p *program) {
	i := slices.IndexFunc(sim.members, func(m *simMember) bool { return m.absent })
	if i < 0 {
		return
	}
	m := sim.members[i]
	sim.trace("member %d admits member %d", p.n, m.n)
	p.submit(&wire.Command{Op: &wire.Command_AdmitMember{AdmitMember: &wire.AdmitMember{
		Member: m.id(), Key: publicKeyOf(m.id()), Ephemeral: sim.extraRNG.IntN(2) == 0,
	}}}, true, func(r *wire.Reply) {
		if r.GetCode() == wire.Code_OK && m.absent {
			m.absent = false
			m.start()
		}
	})
}

// configure replaces the settings of the group.
func (sim *simulation) configure(p *program) {
	p.submit(&wire.Command{Op: &wire.Command_SetGroupConfig{SetGroupConfig: &wire.SetGroupConfig{
		Voters: 1 + 2*sim.extraRNG.Uint32N(3), ReplaceAfter: int64([]time.Duration{0, 5 * time.Second, 8 * time.Second}[sim.extraRNG.IntN(3)]),
	}}}, true, func(*wire.Reply) {})
}

// losePermanently destroys a member with its disk, if the group promises to survive that: a
// majority of the voters knows of the last membership change, and fewer than half of them
// are lost. In one half of the cases it is the leader.
func (sim *simulation) losePermanently() {
	leader := sim.leader()
	if leader == nil || !leader.core.Status().Proposing || !leader.core.Status().Settled {
		return
	}
	if slices.ContainsFunc(sim.remaining(), func(m *simMember) bool { return m.leaveRequested }) {
		return
	}
	voters := leader.core.Status().Membership.GetVoters()
	lost := 0
	for _, id := range voters {
		if sim.members[id-1].destroyed {
			lost++
		}
	}
	m := leader.simMember
	if sim.extraRNG.IntN(2) == 0 {
		m = sim.members[sim.extraRNG.IntN(len(sim.members))]
	}
	if m.absent || m.removed || m.destroyed || slices.Contains(voters, m.id()) && lost+1 > (len(voters)-1)/2 {
		return
	}
	if m.process != nil {
		m.crash("permanently")
	}
	m.destroyed = true
	sim.reportDeath(m)
}

// removeLost is the operator's part after the last fault: it removes the members that are
// lost, until the group has recorded that.
func (sim *simulation) removeLost() {
	sim.schedule(time.Second, func() {
		p := sim.registeredProgram()
		for _, m := range sim.members {
			if p != nil && m.destroyed && !slices.Contains(p.core.Machine().Removed(), m.id()) {
				p.submit(&wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{
					Member: m.id(), Voters: p.core.Status().Membership.GetVoters(),
				}}}, true, func(*wire.Reply) {})
			}
		}
		sim.removeLost()
	})
}

// reconciled reports whether Raft's configuration is what the group's settings ask for.
func (sim *simulation) reconciled() bool {
	leader := sim.leader()
	if leader == nil {
		return false
	}
	conf, remaining := leader.core.Status().Membership, sim.remaining()
	voters := len(conf.GetVoters())
	if len(conf.GetVotersOutgoing()) > 0 || voters+len(conf.GetLearners()) != len(remaining) {
		return false
	}
	wanted := min(int(leader.core.Machine().GroupConfig().Voters), len(remaining))
	return voters == wanted || wanted%2 == 0 && voters == wanted-1
}
