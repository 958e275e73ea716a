package sim

import (
	"math"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// Some members leave for good: their sessions end, whoever leads takes them out
// of the membership, and nothing of them comes back.

// leave has a member's program ask for it, if enough stay to lose one more.
func (w *world) leave(p *program) {
	stay := 0
	for _, m := range w.present() {
		if m.life == nil || !m.life.program.quitting {
			stay++
		}
	}
	if stay < 2 || !p.registered || p.quitting || w.buried() {
		return
	}
	p.asked = true
	w.say("%d is to leave", p.n)
	p.quitting = true
	p.submit(&wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Voters: p.core.Status().Membership.GetVoters()}}}, true, func(r *wire.Reply) {
		switch r.GetCode() {
		case wire.Code_OK:
			p.w.say("%d has left", p.n)
		case wire.Code_INVALID: // the others have not shown themselves yet
			p.quitting, p.asked = false, false
		case wire.Code_UNKNOWN_INCARNATION, wire.Code_CODE_UNSPECIFIED: // to be seen when it registers
		default:
			p.w.fail("member %d cannot leave: %v", p.n, r)
		}
	})
}

// member says whether the group's log, as far as it is on this member's disk,
// counts another as a member still.
func (l *life) member(n int) bool {
	return slices.Contains(slices.Concat(l.conf.GetVoters(), l.conf.GetLearners()), l.w.members[n].id())
}

// dial is what the transport does all the time: it connects to the others, of
// whom one may say that this member has left. That is the end of it.
func (l *life) dial() {
	for _, other := range l.w.members {
		if to := other.life; to != nil && !to.member(l.n) && !l.w.network.cut[l.n][to.n] && !l.w.network.cut[to.n][l.n] {
			l.at(0, func() { l.retire(to.simMember) })
			return
		}
	}
}

// retire is the end of a member. At times it is that of the one who told it as
// well, for good: those who stay have to go on without either.
func (l *life) retire(teller *simMember) {
	l.w.say("%d is gone", l.n)
	l.gone = true
	l.stop()
	stay := l.w.present()
	undecided := slices.ContainsFunc(stay, func(m *simMember) bool { return m.asked })
	if len(stay) > 2 && !undecided && !l.w.buried() && l.w.later.IntN(2) == 0 {
		teller.crash("for good")
		teller.dead = true
	}
}

// buried reports whether somebody died for good. Nobody may leave any more: the
// vote of each may be needed.
func (w *world) buried() bool {
	return slices.ContainsFunc(w.members, func(m *simMember) bool { return m.dead })
}

// departed: nothing of who has left is there, or comes back.
func (a *audit) departed() {
	if len(a.m.Removed()) == 0 {
		return
	}
	for _, s := range sessionsOf(a.m) {
		if slices.Contains(a.m.Removed(), s.Member) {
			a.w.fail("member %d has left, and its session %s lives", s.Member, s.ID)
		}
	}
	for id, member := range a.members { // order: each is looked at
		if slices.Contains(a.m.Removed(), member) && a.m.Incarnation(id) {
			a.w.fail("member %d has left, and its incarnation %s lives", member, id)
		}
	}
}

// That somebody is out is agreed on, and of those who stay only one knows. He tells the
// one who leaves, and is never seen again: the others go on without both. (In seed 227
// the group was lost.)
func TestTheOnlyOneToKnowDies(t *testing.T) {
	w := scriptedWorld(t, 1, 4, faults{leaves: true})
	teller := w.leader()
	leaver := w.members[(teller.n+1)%4]
	w.register(leaver.n)
	w.leave(leaver.life.program)
	others := slices.DeleteFunc(w.present(), func(m *simMember) bool { return m == leaver || m == teller.simMember })
	w.await(election, "second change of the membership in another log", func() bool {
		return slices.ContainsFunc(others, func(m *simMember) bool { return m.life.membershipChanges() == 2 })
	})
	for _, m := range others {
		w.network.cut[teller.n][m.n] = true
	}
	w.await(election, "word to the leaver", func() bool { return leaver.gone })
	teller.crash("for good")
	teller.dead = true
	w.network.reset()
	w.awaitLeader()
}

// membershipChanges is how many are in the member's log, agreed on or not.
func (l *life) membershipChanges() (n int) {
	first, _ := l.log.FirstIndex() // in memory: never fails
	last, _ := l.log.LastIndex()
	entries, err := l.log.Entries(first, last+1, math.MaxUint64)
	if err != nil {
		l.w.fail("member %d: reading the log: %v", l.n, err)
	}
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal {
			n++
		}
	}
	return n
}
