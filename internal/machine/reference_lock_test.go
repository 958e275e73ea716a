package machine

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/wire"
)

// Locks and elections, DESIGN 4.5, as the reference reads them.

// handOn grants a free lock to the first that waits, or forgets it.
func (r *reference) handOn(l *refLock) {
	if len(l.queue) == 0 {
		r.locks = slices.DeleteFunc(r.locks, func(o *refLock) bool { return o == l })
		return
	}
	next := l.queue[0]
	l.queue = slices.Clone(l.queue[1:])
	r.final(next.ticket, r.grant(l, next))
}

func (r *reference) grant(l *refLock, p refPlace) *wire.Reply {
	r.granted++
	l.owner, l.left, l.holds, l.fence = &p, false, 1, r.granted
	r.lead(l)
	return &wire.Reply{Code: wire.Code_OK, Fence: l.fence, Holds: 1}
}

// lead notes who leads an election from now on.
func (r *reference) lead(l *refLock) {
	if !l.election {
		return
	}
	change := wire.LeaderChange{Election: l.name}
	if o := l.owner; o != nil {
		change.Leader = &wire.Leader{Value: o.value, Fence: l.fence, Session: o.session, Member: r.session(o.session[:]).member}
	}
	r.leaders = append(r.leaders, change)
}

func (r *reference) lock(t wire.Ticket, c *wire.Lock) *wire.Reply {
	bad := refName(c.Name)
	switch {
	case bad != nil:
		return bad
	case !c.Election && len(c.Value) > 0:
		return refCode(wire.Code_INVALID)
	case len(c.Value) > MaxCandidate:
		return refCode(wire.Code_TOO_LARGE)
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	place := refPlace{session: wire.ID(c.Session), handle: c.Handle, ticket: t, value: c.Value}
	l := r.find(c.Election, c.Name)
	mine := l.heldBy(c.Session, c.Handle)
	if c.Fence != 0 && (!mine || l.fence != c.Fence) {
		return refCode(wire.Code_OWNERSHIP_LOST)
	}
	switch {
	case l == nil:
		l = &refLock{name: c.Name, election: c.Election}
		r.locks = append(r.locks, l)
		return r.grant(l, place)
	case l.left && l.owner.session == place.session:
		return r.grant(l, place)
	case mine && c.Reentrant:
		if c.Limit > 0 && l.holds >= c.Limit {
			return refCode(wire.Code_LIMIT_REACHED)
		}
		l.holds++
		return &wire.Reply{Code: wire.Code_OK, Fence: l.fence, Holds: l.holds}
	case c.Wait && len(l.queue) >= MaxWaiters:
		return refCode(wire.Code_TOO_LARGE)
	case c.Wait:
		r.arrivals++
		place.arrival = r.arrivals
		l.queue = append(l.queue, place)
		return refCode(wire.Code_QUEUED)
	case l.owner != nil:
		return refCode(wire.Code_LOCKED)
	}
	return &wire.Reply{Code: wire.Code_LOCK_DELAY, Delay: l.until - r.now}
}

// heldBy says whether the handle holds the lock; nobody's handle does, when
// the one who took it is gone.
func (l *refLock) heldBy(session []byte, handle uint64) bool {
	return l != nil && l.owner != nil && !l.left && bytes.Equal(l.owner.session[:], session) && l.owner.handle == handle
}

func (r *reference) unlock(c *wire.Unlock) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	l := r.find(c.Election, c.Name)
	switch {
	case !l.heldBy(c.Session, c.Handle):
		return refCode(wire.Code_NOT_HELD)
	case l.fence != c.Fence:
		return refCode(wire.Code_OWNERSHIP_LOST)
	}
	return r.giveBack(l)
}

func (r *reference) giveBack(l *refLock) *wire.Reply {
	reply := &wire.Reply{Code: wire.Code_OK, Fence: l.fence, Holds: l.holds - 1}
	l.holds--
	if l.holds == 0 {
		r.free(l, 0)
	}
	return reply
}

// free takes a lock from its owner.
func (r *reference) free(l *refLock, delay int64) {
	l.owner, l.left, l.holds, l.fence = nil, false, 0, 0
	if delay > 0 {
		l.until = refAdd(r.now, delay)
	} else {
		r.handOn(l)
	}
	if l.owner == nil {
		r.lead(l)
	}
}

func (r *reference) freeLocks(session wire.ID, delay int64) {
	var held []*refLock
	for _, l := range r.locks {
		if l.owner != nil && l.owner.session == session {
			held = append(held, l)
		}
	}
	slices.SortFunc(held, func(a, b *refLock) int { return cmp.Compare(a.fence, b.fence) })
	for _, l := range held {
		r.free(l, delay)
	}
}

func (r *reference) proclaim(c *wire.Proclaim) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	if len(c.Value) > MaxCandidate {
		return refCode(wire.Code_TOO_LARGE)
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	l := r.find(true, c.Name)
	switch {
	case !l.heldBy(c.Session, c.Handle):
		return refCode(wire.Code_NOT_HELD)
	case l.fence != c.Fence:
		return refCode(wire.Code_OWNERSHIP_LOST)
	case !bytes.Equal(l.owner.value, c.Value):
		l.owner.value = c.Value
		r.lead(l)
	}
	return &wire.Reply{Code: wire.Code_OK, Fence: l.fence, Holds: l.holds}
}

func (r *reference) withdraw(inc wire.ID, c *wire.Withdraw) *wire.Reply {
	bad := refName(c.Name)
	switch {
	case bad != nil:
		return bad
	case c.Space < 0 || c.Space > wire.Space_SEMAPHORE:
		return refCode(wire.Code_INVALID)
	case len(c.Session) != 16:
		return refCode(wire.Code_INVALID)
	case c.Space == wire.Space_SEMAPHORE:
		return r.withdrawPermits(wire.Ticket{Incarnation: inc, Seq: c.Seq}, c)
	}
	same := func(p refPlace) bool {
		return p.ticket == wire.Ticket{Incarnation: inc, Seq: c.Seq} && p.session == wire.ID(c.Session) && p.handle == c.Handle
	}
	l := r.find(c.Space == wire.Space_ELECTION, c.Name)
	if l == nil {
		return refCode(wire.Code_NOT_HELD)
	}
	for _, p := range l.queue {
		if same(p) {
			r.leave([]refPlace{p}, wire.Code_WITHDRAWN)
			return refCode(wire.Code_OK)
		}
	}
	if l.owner != nil && same(*l.owner) {
		l.owner.ticket = wire.Ticket{}
		return r.giveBack(l)
	}
	return refCode(wire.Code_NOT_HELD)
}

func (r *reference) find(election bool, name string) *refLock {
	for _, l := range r.locks {
		if l.election == election && l.name == name {
			return l
		}
	}
	return nil
}

func (l *refLock) key() string {
	if l.election {
		return "e" + l.name
	}
	return "l" + l.name
}

func refName(name string) *wire.Reply {
	switch {
	case len(name) > MaxName:
		return refCode(wire.Code_TOO_LARGE)
	case name == "" || !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return refCode(wire.Code_INVALID)
	}
	return nil
}
