package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// What quiet groups do when they are needed, at the end of a run: one after the other, without any other fault.

// quietLimit bounds how long a call takes in a quiet group, or an election: a few election timeouts. Connections last longer.
const quietLimit = 5 * longestElection

// checkQuiet: a group in which nothing happens is quiet. It has another leader soon after the connections to the host of its leader have ended, without any
// call, and serves each member.
func (sim *simulation) checkQuiet() {
	further := sim.groups()[1:]
	if !sim.rests || len(further) == 0 || slices.ContainsFunc(further, func(g *simulation) bool { return !g.isComplete() }) {
		return
	}
	sim.awaitQuiet()
	for _, g := range further {
		g.disturb()
		for _, m := range g.remaining() {
			g.mustServe(m)
		}
		sim.awaitQuiet()
	}
	sim.advance(incarnationTTL + 2*longestElection) // until no process is registered
	sim.awaitQuiet()
}

// isComplete reports whether all members of the group run. It is not quiet without one, as that cannot agree: a member that is lost may still be one.
func (sim *simulation) isComplete() bool {
	leader := sim.leader()
	return leader != nil && !slices.ContainsFunc(core.MembersOf(leader.core.Status().Membership), func(id uint64) bool { return sim.members[id-1].process == nil })
}

// awaitQuiet waits until all further groups are quiet.
func (sim *simulation) awaitQuiet() {
	sim.await(recoveryLimit, "quiet of all further groups", func() bool {
		return !slices.ContainsFunc(sim.groups()[1:], func(g *simulation) bool {
			return !g.isQuiet() || slices.ContainsFunc(g.remaining(), func(m *simMember) bool { return m.process == nil })
		})
	})
}

// disturb has something happen to the host of the leader of a quiet group, or only has one member use the group.
func (sim *simulation) disturb() {
	leader, rng := sim.leader(), sim.rest.rng
	if leader == nil {
		sim.fail("the group is quiet, and has no leader")
	}
	voters := leader.core.Status().Membership.GetVoters()
	others := slices.DeleteFunc(sim.remaining(), func(m *simMember) bool { return m.n == leader.n || !slices.Contains(voters, m.id()) })
	shape := rng.IntN(5)
	if len(others) < 2 { // it is needed
		shape = rng.IntN(2)
	}
	switch m := leader.simMember; shape {
	case 0:
		sim.trace("the host of the leader restarts at once")
		m.restartAtOnce()
	case 1:
		sim.mustServe(sim.remaining()[rng.IntN(len(sim.remaining()))])
	case 2:
		sim.trace("the host of the leader is lost")
		m.crash("its host is lost")
		sim.mustReplace(leader)
		m.of.start()
	case 3:
		sim.trace("the host of the leader is isolated")
		sim.isolate(m.n)
		sim.mustReplace(leader)
		sim.network.heal()
	case 4:
		sim.trace("the process of the leader hangs, and its connections do not")
		sim.connections.hung = m.host
		leader.pause(quietLimit)
		resumes := sim.now + quietLimit
		sim.mustServe(others[rng.IntN(len(others))])
		sim.advance(resumes - sim.now)
		sim.connections.hung = nil
	}
}

// mustReplace waits until another member leads.
func (sim *simulation) mustReplace(former *process) {
	sim.await(keepAlives+quietLimit, "other leader of a quiet group", func() bool {
		leader := sim.leader()
		return leader != nil && leader != former && leader.core.Status().Proposing
	})
	sim.quiet.counts.leaders++
}

// mustServe has a member use the group: the outcome comes soon.
func (sim *simulation) mustServe(m *simMember) {
	served := false
	sim.await(quietLimit, "process", func() bool { return m.process != nil })
	p := m.process.program
	if sim.rest.rng.IntN(2) == 0 {
		p.query(machine.IndexQuery{}, func(any) { served = true })
	} else {
		p.submit(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}, true, func(*wire.Reply) { served = true })
	}
	sim.await(quietLimit-time.Millisecond, "outcome in a quiet group", func() bool { return served })
	sim.quiet.counts.served++
}
