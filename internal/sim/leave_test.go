package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// Some members leave for good: their sessions end, whoever leads takes them out
// of the membership, and nothing of them comes back.

// leave has a member's program ask for it, if enough stay to lose one more.
func (w *world) leave(p *program) {
	stay := 0
	for _, m := range w.members {
		if !m.gone && (m.life == nil || !m.life.program.quitting) {
			stay++
		}
	}
	if stay < 2 || !p.registered || p.quitting {
		return
	}
	w.say("%d is to leave", p.n)
	p.quitting = true
	p.submit(&wire.Command{Op: &wire.Command_Leave{Leave: &wire.Leave{Voters: p.core.Status().Membership.GetVoters()}}}, true, func(r *wire.Reply) {
		switch r.GetCode() {
		case wire.Code_OK:
			p.w.say("%d has left", p.n)
		case wire.Code_INVALID: // the others have not shown themselves yet
			p.quitting = false
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
			l.at(0, l.retire)
			return
		}
	}
}

// retire is the end of a member.
func (l *life) retire() {
	l.w.say("%d is gone", l.n)
	l.gone = true
	l.stop()
}

// departed: nothing of who has left is there, or comes back.
func (a *audit) departed() {
	if len(a.m.Left()) == 0 {
		return
	}
	for _, s := range a.m.Sessions() {
		if slices.Contains(a.m.Left(), s.Member) {
			a.w.fail("member %d has left, and its session %s lives", s.Member, s.ID)
		}
	}
	for id, member := range a.members { // order: each is looked at
		if slices.Contains(a.m.Left(), member) && a.m.Incarnation(id) {
			a.w.fail("member %d has left, and its incarnation %s lives", member, id)
		}
	}
}
