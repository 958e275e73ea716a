package sim

import (
	"testing"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// createGroup has member n create a further group, and waits until all members are registered in it.
func (sim *simulation) createGroup(n int, name string) *simulation {
	sim.t.Helper()
	sim.mustInvoke(n, wire.Code_OK, &wire.Command{Op: &wire.Command_CreateGroup{CreateGroup: &wire.CreateGroup{
		Name: name, Voters: sim.leader().core.Status().Membership.GetVoters(),
	}}})
	g := sim.named(name)
	for _, m := range g.remaining() {
		sim.await(10*longestElection, "part in the group", func() bool { return m.process != nil })
		g.register(m.n)
	}
	return g
}

// A group is deleted and its log erased on all members. The power of all is lost when that is on their disks, by another group's sync, and the
// commit index of the default group is not: it lists the group again until it has a leader. No member may begin the group again, which
// would grant its fences again.
func TestGroupDeletion_PowerLossAfterErase(t *testing.T) {
	sim := newScriptedSimulation(t, 2, 3, faults{})
	sim.register(0, 1, 2)
	deleted, other := sim.createGroup(0, "deleted"), sim.createGroup(0, "other")
	for n := range sim.members {
		sim.program(n).registered = n == 0 // only its process submits the drop, so that no later entry takes the commit index along
	}
	deleted.mustInvoke(0, wire.Code_OK, &wire.Command{Op: &wire.Command_SealGroup{SealGroup: &wire.SealGroup{}}})
	sim.await(10*longestElection, "erased logs", func() bool { return !deleted.isHosted() })
	s := other.program(0).newSession(longestTTL, 0, wire.Behavior_RELEASE)
	sim.await(longestElection, "session", func() bool { return s.open })
	for _, m := range sim.members {
		m.crash("power loss")
	}
	for _, m := range sim.members {
		m.start()
	}
	for _, m := range deleted.members {
		if m.process != nil {
			t.Errorf("member %d takes part in the deleted group again, applied to %d", m.n, m.process.core.Status().Applied)
		}
	}
	sim.awaitLeader()
}

// The only voter leaves while no standby is connected to it: the default group has no other voter yet. Its process leads the further group, and must
// not have that follow members without a voter: that would end its own registration there, so that the group could never learn of its successor.
func TestGroupRemoval_OnlyVoterLeaves(t *testing.T) {
	s := newMembershipScript(t, 2)
	sim := s.sim
	sim.register(0, 1, 2)
	s.submit("settings", func(*program) *wire.Command {
		return &wire.Command{Op: &wire.Command_SetGroupConfig{SetGroupConfig: &wire.SetGroupConfig{Voters: 1}}}
	}, func(m *machine.Machine) bool { return m.GroupConfig().Voters == 1 })
	s.awaitRoles(1, 2)
	sim.awaitLeader()
	leaver := sim.leader()
	g := sim.createGroup(leaver.n, "further")
	sim.await(recoveryLimit, "members of the further group", g.followed)
	sim.isolate(leaver.n)
	sim.advance(2 * longestElection) // its standbys are not active any more
	sim.requestLeave(leaver.program)
	sim.await(longestElection, "removal", func() bool { return leaver.knowsRemoved(leaver.n) })
	sim.advance(5 * tick)
	sim.network.heal()
	sim.await(recoveryLimit, "stop of the removed member", func() bool { return leaver.removed })
	sim.await(recoveryLimit, "another leader", func() bool { return g.leader() != nil && g.followed() })
}
