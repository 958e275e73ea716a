package sim

import (
	"bytes"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
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
			m.endorsers = append(slices.Clone(p.endorsers), endorser{p.n, r.GetIndex()})
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
	if len(leader.core.Status().Membership.GetVotersOutgoing()) > 0 || !sim.groupsSettled() {
		return // both halves of a joint configuration are needed
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
// lost, until the group has recorded that, and starts those that were admitted while the
// answer was lost.
func (sim *simulation) removeLost() {
	sim.schedule(time.Second, func() {
		p := sim.registeredProgram()
		for _, m := range sim.members {
			if p != nil && m.absent && slices.ContainsFunc(p.core.Machine().Members(), func(r fact.MemberRecord) bool { return r.ID == m.id() }) {
				m.absent = false
				m.endorsers = append(slices.Clone(p.endorsers), endorser{p.n, p.core.Status().Applied})
				m.start()
			}
			if p != nil && m.process != nil && !m.removed && slices.ContainsFunc(p.core.Machine().Members(), func(r fact.MemberRecord) bool { return r.ID == m.id() && r.Silent }) {
				p.reportLiveness(m, true) // as the failure detector does
			}
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

// membershipScript is a membership change of each kind, in a group of three voters: two members
// join, a third voter is lost and removed, which a standby replaces, and a voter leaves.
type membershipScript struct {
	sim *simulation
}

func newMembershipScript(t *testing.T, seed uint64) *membershipScript {
	cryptotest.SetGlobalRandom(t, seed)
	sim := newSimulation(t, seed)
	sim.script = func(*program) {}
	f := faults{sim: sim, keepEntries: 10_000, joins: true, checks: true, removals: true}
	sim.formGroup(3, 0, f)
	t.Cleanup(sim.shutDown)
	sim.awaitLeader()
	return &membershipScript{sim: sim}
}

// submit has the program of a member submit a command until it is in effect.
func (s *membershipScript) submit(what string, c func(*program) *wire.Command, done func(*machine.Machine) bool) {
	s.sim.t.Helper()
	s.sim.await(recoveryLimit, what, func() bool {
		if done(s.sim.history.oracle) {
			return true
		}
		for _, m := range s.sim.remaining() {
			p := m.process
			if p != nil && p.program.registered && p.program.inFlight == 0 && !p.program.leaving {
				p.program.submit(c(p.program), true, func(*wire.Reply) {})
				return false
			}
		}
		return false
	})
}

// run carries the script out. Each member registers when it starts.
func (s *membershipScript) run() {
	s.sim.t.Helper()
	sim := s.sim
	isMember := func(id uint64) func(*machine.Machine) bool {
		return func(m *machine.Machine) bool {
			return slices.ContainsFunc(m.Members(), func(r fact.MemberRecord) bool { return r.ID == id })
		}
	}
	isRemoved := func(id uint64) func(*machine.Machine) bool {
		return func(m *machine.Machine) bool { return slices.Contains(m.Removed(), id) }
	}
	for _, m := range sim.members[3:5] {
		s.submit("admission", func(*program) *wire.Command {
			return &wire.Command{Op: &wire.Command_AdmitMember{AdmitMember: &wire.AdmitMember{Member: m.id(), Key: publicKeyOf(m.id())}}}
		}, isMember(m.id()))
		m.absent = false
		m.start()
	}
	s.awaitRoles(3, 2)
	s.submit("settings", func(*program) *wire.Command {
		return &wire.Command{Op: &wire.Command_SetGroupConfig{SetGroupConfig: &wire.SetGroupConfig{Voters: 5}}}
	}, func(m *machine.Machine) bool { return m.GroupConfig().Voters == 5 })
	s.awaitRoles(5, 0)
	s.submit("settings", func(*program) *wire.Command {
		return &wire.Command{Op: &wire.Command_SetGroupConfig{SetGroupConfig: &wire.SetGroupConfig{Voters: 3}}}
	}, func(m *machine.Machine) bool { return m.GroupConfig().Voters == 3 })
	s.awaitRoles(3, 2)
	sim.awaitLeader()
	leaver := sim.members[sim.leader().core.Status().Membership.GetVoters()[0]-1]
	s.submit("removal", func(p *program) *wire.Command {
		return &wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Member: leaver.id(), Voters: p.core.Status().Membership.GetVoters()}}}
	}, isRemoved(leaver.id()))
	s.awaitRoles(3, 1)
	sim.await(recoveryLimit, "stop of the removed member", func() bool { return leaver.removed })
}

// awaitRoles waits until all members know the roles.
func (s *membershipScript) awaitRoles(voters, standbys int) {
	s.sim.t.Helper()
	s.sim.await(recoveryLimit, "roles", func() bool {
		n := 0
		for _, m := range s.sim.remaining() {
			if m.process == nil {
				return false
			}
			conf := m.process.core.Status().Membership
			if slices.Contains(m.process.core.Machine().Removed(), m.id()) {
				continue
			}
			if len(conf.GetVoters()) != voters || len(conf.GetLearners()) != standbys || len(conf.GetVotersOutgoing()) > 0 {
				return false
			}
			n++
		}
		return n == voters+standbys
	})
}

// The leader crashes at each step of each membership change, with its unsynced data; in every
// second run it is away until the end of the change, in the others it restarts at once.
func TestMembership_LeaderCrashesAtEachStep(t *testing.T) {
	steps := 0
	s := newMembershipScript(t, 1)
	s.eachLeaderStep(func() { steps++ })
	s.run()
	t.Logf("%d steps of the leader", steps)
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for at := 1; at <= steps; at += stride {
		s := newMembershipScript(t, 1)
		n := 0
		s.eachLeaderStep(func() {
			if n++; n == at {
				leader := s.sim.leader()
				leader.crash("at a step")
				s.sim.schedule(time.Duration(at%2)*3*time.Second+time.Millisecond, func() {
					if m := leader.simMember; m.process == nil && !m.removed {
						m.start()
					}
				})
			}
		})
		s.run()
	}
}

// eachLeaderStep calls f after each event in which the leader of a running change stored
// or applied something.
func (s *membershipScript) eachLeaderStep(f func()) {
	var before progress
	s.sim.script = func(p *program) { p.register() }
	for _, m := range s.sim.members[:3] {
		m.process.program.register()
	}
	var watch func()
	watch = func() {
		if leader := s.sim.leader(); leader != nil {
			_, last := leader.core.Status().Term, leader.core.Durable().Index
			now := progress{leader.core.Status().Term, leader.core.Status().Applied, last}
			if now != before {
				before = now
				f()
			}
		}
		s.sim.schedule(200*time.Microsecond, watch)
	}
	s.sim.schedule(0, watch)
}
