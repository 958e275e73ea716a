package sim

import (
	"math"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// requestLeave has a member request its removal, if enough members remain to lose
// one more.
func (sim *simulation) requestLeave(p *program) {
	remaining := 0
	for _, m := range sim.remaining() {
		if m.process == nil || !m.process.program.leaving {
			remaining++
		}
	}
	if remaining < 2 || !p.registered || p.leaving || sim.anyDestroyed() || sim.onlyVoter(p.simMember) {
		return
	}
	p.leaveRequested = true
	sim.trace("member %d requests its removal", p.n)
	p.leaving = true
	p.submit(&wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Voters: p.core.Status().Membership.GetVoters()}}}, true, func(r *wire.Reply) {
		switch r.GetCode() {
		case wire.Code_OK:
			p.sim.trace("the removal of member %d is committed", p.n)
		case wire.Code_INVALID: // the other members are not connected yet
			p.leaving, p.leaveRequested = false, false
		case wire.Code_UNKNOWN_INCARNATION, wire.Code_CODE_UNSPECIFIED: // the outcome of its next registration shows it
		default:
			p.sim.fail("member %d: request removal: %v", p.n, r)
		}
	})
}

// requestLeaves has a member leave, at times together with another one, and at times
// under a new partition.
func (sim *simulation) requestLeaves(m *simMember) {
	leaving := []*simMember{m}
	if sim.extraRNG.IntN(2) == 0 {
		leaving = append(leaving, sim.members[sim.extraRNG.IntN(len(sim.members))])
	}
	for _, m := range leaving {
		if m.process != nil {
			sim.requestLeave(m.process.program)
		}
	}
	if len(leaving) > 1 && sim.faults.partitions && sim.extraRNG.IntN(2) == 0 {
		sim.partition()
	}
}

// isMember reports whether member n is in the configuration on this member's disk.
func (proc *process) isMember(n int) bool {
	if proc.of != nil { // it uses the connections of the default group
		return proc.of.process.isMember(n)
	}
	if len(proc.conf.GetVoters()) == 0 { // it was admitted and has no state yet
		return true
	}
	return proc.vouched[n] > proc.core.Status().Applied || proc.inConf(n)
}

// inConf reports whether member n is in the configuration on this member's disk.
func (proc *process) inConf(n int) bool {
	return slices.Contains(slices.Concat(proc.conf.GetVoters(), proc.conf.GetLearners(), proc.conf.GetVotersOutgoing()), proc.sim.members[n].id())
}

// reach stands for the connections to the other members.
func (proc *process) reach() {
	if proc.sim.faults.joins {
		proc.learnMembership()
	}
	proc.connect()
	proc.checkGroupsAdmitted()
}

// learnMembership stands for what each member sends over a new connection: its endorsements, if
// this member does not know it, and its membership, in which those that this member knows vouch
// for those that it does not know yet.
func (proc *process) learnMembership() {
	applied := proc.core.Status().Applied
	for _, other := range proc.sim.members {
		to := other.process
		if to == nil || to == proc || !to.inConf(proc.n) || proc.sim.network.cut[other.n][proc.n] {
			continue
		}
		if !proc.isMember(other.n) && proc.core.Status().Leader == 0 && proc.isEndorsed(other) {
			proc.vouched[other.n] = applied + 1
		}
		if !proc.isMember(other.n) || to.core.Status().Applied <= applied {
			continue
		}
		for n := range proc.sim.members {
			if to.inConf(n) && !proc.knowsRemoved(n) {
				proc.vouched[n] = max(proc.vouched[n], to.core.Status().Applied)
			}
		}
	}
}

// endorser is a member that has admitted another one, and the index of that.
type endorser struct {
	n     int
	index uint64
}

// isEndorsed reports whether the endorsements of another member lead from one that this member
// knows (cluster/identity/endorsements.go).
func (proc *process) isEndorsed(other *simMember) bool {
	if proc.knowsRemoved(other.n) {
		return false
	}
	if slices.ContainsFunc(proc.core.Machine().Members(), func(r fact.MemberRecord) bool { return r.ID == other.id() }) {
		return true
	}
	applied := proc.core.Status().Applied
	if own := proc.endorsers; len(own) > 0 {
		applied = max(applied, own[len(own)-1].index)
	}
	for _, e := range slices.Backward(other.endorsers) {
		if e.n == proc.n || proc.isMember(e.n) {
			return e.index > applied
		}
	}
	return false
}

func (proc *process) knowsRemoved(n int) bool {
	return slices.Contains(proc.core.Machine().Removed(), proc.sim.members[n].id())
}

// connect stands for the transport, which connects to all peers: those that refuse this
// member as removed confirm its removal, if they are voters of its own configuration, and
// one is sufficient if its own log contains the removal, else a majority
// (cluster/member_removal.go).
func (proc *process) connect() {
	conf, us := proc.core.Status().Membership, proc.simMember.id()
	var refusers []*simMember
	others, gone, refused := 0, 0, false
	for _, other := range proc.sim.members {
		refuses := proc.isRefusedBy(other)
		refused = refused || refuses
		if other.id() == us || len(conf.GetVoters()) > 0 && !slices.Contains(conf.GetVoters(), other.id()) {
			continue
		}
		others++
		if other.removed || other.destroyed {
			gone++
		}
		if refuses {
			refusers = append(refusers, other)
		}
	}
	needed := min(len(conf.GetVoters())/2+1, others)
	if !slices.Contains(conf.GetVoters(), us) && !slices.Contains(conf.GetLearners(), us) {
		needed = 1 // or it has no configuration yet
	}
	switch {
	case !refused:
	case len(refusers) >= needed && len(refusers) > 0:
		proc.after(0, func() { proc.learnRemoval(refusers[0]) })
	case proc.sim.draining && len(refusers)+gone == others:
		proc.after(0, proc.deleteDirectory)
	}
}

// isRefusedBy reports whether another member refuses this one as removed.
func (proc *process) isRefusedBy(other *simMember) bool {
	to, cut := other.process, proc.sim.network.cut
	return to != nil && !to.isMember(proc.n) && to.knowsRemoved(proc.n) && !cut[proc.n][to.n] && !cut[to.n][proc.n]
}

// deleteDirectory stands for the operator of a member whose removal too few voters are
// left to confirm: they have left as well, before its log contained its removal.
func (proc *process) deleteDirectory() {
	proc.sim.trace("the directory of member %d is deleted", proc.n)
	proc.removed = true
	proc.stop()
}

// learnRemoval stops a removed member. At times the informing member is lost
// permanently at the same moment: the remaining ones must continue without both.
func (proc *process) learnRemoval(informer *simMember) {
	proc.sim.trace("member %d learns of its removal", proc.n)
	proc.removed = true
	proc.stop()
	remaining := proc.sim.remaining()
	undecided := slices.ContainsFunc(remaining, func(m *simMember) bool { return m.leaveRequested })
	if len(remaining) > 2 && !undecided && !proc.sim.anyDestroyed() && proc.sim.standbys == 0 && !proc.sim.faults.joins && proc.sim.extraRNG.IntN(2) == 0 {
		informer.crash("permanently")
		informer.destroyed = true
	}
}

// anyDestroyed reports whether a member is permanently lost. No further member may
// leave then: the vote of each may be needed.
func (sim *simulation) anyDestroyed() bool {
	return slices.ContainsFunc(sim.members, func(m *simMember) bool { return m.destroyed })
}

// onlyVoter reports whether the group was formed with this voter and standbys only.
func (sim *simulation) onlyVoter(m *simMember) bool {
	return m.n == 0 && len(sim.members) == 1+sim.standbys && !sim.faults.joins
}

// checkRemoved: nothing of a removed member remains or returns.
func (a *audit) checkRemoved() {
	if len(a.m.Removed()) == 0 {
		return
	}
	for _, s := range sessionsOf(a.m) {
		if slices.Contains(a.m.Removed(), s.Member) {
			a.sim.fail("member %d is removed, and its session %s is alive", s.Member, s.ID)
		}
	}
	for id, member := range a.memberOf { // order: each is checked
		if slices.Contains(a.m.Removed(), member) && registered(a.m, id) {
			a.sim.fail("member %d is removed, and its incarnation %s is alive", member, id)
		}
	}
}

// A removal is committed, and of the remaining members only one knows it. That one
// informs the removed member and is lost permanently; the others must continue
// without both. (In seed 227 the group lost its quorum.)
func TestRemoval_OnlyInformedMemberLost(t *testing.T) {
	sim := newScriptedSimulation(t, 1, 4, faults{removals: true})
	informer := sim.leader()
	leaving := sim.members[(informer.n+1)%4]
	sim.register(leaving.n)
	sim.requestLeave(leaving.process.program)
	others := slices.DeleteFunc(sim.remaining(), func(m *simMember) bool { return m == leaving || m == informer.simMember })
	sim.await(longestElection, "second membership change in another log", func() bool {
		return slices.ContainsFunc(others, func(m *simMember) bool { return m.process.membershipChanges() == 2 })
	})
	for _, m := range others {
		sim.network.cut[informer.n][m.n] = true
	}
	sim.await(longestElection, "removed member informed", func() bool { return leaving.removed })
	informer.crash("permanently")
	informer.destroyed = true
	sim.network.heal()
	sim.awaitLeader()
}

// membershipChanges counts those in the member's log, committed or not.
func (proc *process) membershipChanges() (n int) {
	first, _ := proc.log.FirstIndex() // in memory: never fails
	last, _ := proc.log.LastIndex()
	entries, err := proc.log.Entries(first, last+1, math.MaxUint64)
	if err != nil {
		proc.sim.fail("member %d: read the log: %v", proc.n, err)
	}
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal {
			n++
		}
	}
	return n
}
