package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// When this process leaves a member that it is connected to, since another one may be able to do
// more. A member is of no use if it has no leader, or if nothing that the group has to answer is
// answered. A group that is slow is no reason to leave a member: the outcome of a call would be
// as late on another one, and an acknowledgement on its way is lost with the connection. So the
// member is first asked for something that takes a quorum and no entry of the log.

var (
	errNoAnswer = errors.New("the member has not acknowledged the registration, a renewal or a call in time, " +
		"nor has it reached a quorum when asked: it lags, or no quorum is reachable from it")
	errLeaderless = errors.New("the member has no leader: it is partitioned from the others, or the group has no quorum")
)

// leaving bounds how often members are left. The loop owns it.
type leaving struct {
	left  map[uint64]bool // members, since the group has last answered: others are tried before them
	pause uint64          // ticks, between the last two moves after which no member was of use
	after uint64          // tick before which the member is not left
}

const (
	// minStay and maxStay bound the time that is spent with a member if no other one is of more
	// use. It doubles.
	minStay, maxStay = uint64(2 * time.Second / tick), uint64(30 * time.Second / tick)
	// renewalPatience is how many times the patience a renewal may take at a member that answers
	// otherwise.
	renewalPatience = 5
	// maxProbeShift bounds how far apart the probes of a slow group are.
	maxProbeShift = 2
)

// asked notes that the member owes an answer from now on.
func (l *link) asked(tick uint64) {
	if l.askedAt == 0 {
		l.askedAt = max(tick, 1)
	}
}

// hears notes that the member has delivered what the group alone can answer.
func (g *Group) hears() {
	g.leaving = leaving{}
	if g.link != nil {
		g.link.heardAt, g.link.probes = g.ticks, 0
	}
}

// probed notes the answer to a probe. That the group is being deleted is one: no other member has a better.
func (g *Group) probed(l *link, failed error) {
	var refused *RequestError
	isDeleted := errors.As(failed, &refused) && refused.Failure == wire.Failure_FAILURE_NO_GROUP
	if l.probing = false; (failed == nil || isDeleted) && g.link == l {
		probes := l.probes
		g.hears()
		l.probes = min(probes+1, maxProbeShift)
	}
}

// noteLeader notes whether the member of the link has a leader.
func (g *Group) noteLeader(l *link, leaderless bool) {
	switch {
	case !leaderless:
		l.leaderlessAt = 0
	case l.leaderlessAt == 0:
		l.leaderlessAt = max(g.ticks, 1)
	}
}

// stay bounds how soon a member is left that was no better than those left before.
func (g *Group) stay() {
	pause := min(max(2*g.leaving.pause, minStay), maxStay)
	g.leaving = leaving{pause: pause, after: g.ticks + pause/2 + rand.N(pause)}
}

// checkLink leaves a member that is of no use. It runs with each tick.
func (g *Group) checkLink() {
	l := g.link
	if l == nil {
		return
	}
	switch {
	case !g.tickets.Unanswered() && len(g.renewals) == 0 && !g.asking.owed(l):
		l.askedAt, l.probes = 0, 0
	default:
		l.asked(g.ticks)
	}
	if len(g.renewals) == 0 {
		l.renewalAt = 0
	}
	patience := g.cfg.Patience()
	since := func(at uint64) time.Duration { return time.Duration(g.ticks-at) * tick }
	silent := since(max(l.askedAt, l.heardAt))
	probe := patience / 2 << l.probes
	switch {
	case g.cfg.ReadOnly && g.asking.whole(l): // no session is at stake, and what another member begins would break off as well
	case l.leaderlessAt != 0 && since(l.leaderlessAt) > patience:
		g.leave(l, errLeaderless)
	case l.renewalAt != 0 && since(l.renewalAt) > renewalPatience*patience:
		g.leave(l, errNoAnswer)
	case l.askedAt != 0 && silent > probe+patience/2:
		g.leave(l, errNoAnswer)
	case l.askedAt != 0 && silent > probe && !l.probing:
		g.probe(l)
	}
}

// leave ends a link, unless a member was left too recently to no avail.
func (g *Group) leave(l *link, why error) {
	if g.ticks < g.leaving.after {
		return
	}
	g.leaving.note(l.conn.Peer().Member)
	g.disconnect(why)
}

// note notes that a member is left.
func (l *leaving) note(member uint64) {
	if l.left == nil {
		l.left = make(map[uint64]bool)
	}
	l.left[member] = true
}

// probe asks the member for something that takes a quorum: see checkLink.
func (g *Group) probe(l *link) {
	kind, body, err := machine.EncodeQuery(machine.IndexQuery{})
	if err != nil {
		return
	}
	q := g.asking.add(context.Background(), l, false, func(q *question, failed error) {
		g.mailbox.Post(func() {
			g.asking.remove(q)
			g.probed(l, failed)
		})
	})
	l.probing = l.conn.Offer(&wire.ClientFrame{Body: &wire.ClientFrame_Request{
		Request: &wire.Request{Id: q.id, Kind: kind, Body: body},
	}}, len(body), false)
	if !l.probing {
		g.asking.remove(q) // the queue is full: the next tick tries again
	}
}
