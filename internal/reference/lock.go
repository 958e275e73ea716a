package reference

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/wire"
)

// Locks and elections, DESIGN 4.5.

// handOn grants a free lock to the first that waits, or forgets it.
func (r *Model) handOn(l *Lock) {
	if len(l.Queue) == 0 {
		r.Locks = slices.DeleteFunc(r.Locks, func(o *Lock) bool { return o == l })
		return
	}
	next := l.Queue[0]
	l.Queue = slices.Clone(l.Queue[1:])
	r.final(next.Ticket, r.grant(l, next))
}

func (r *Model) grant(l *Lock, p Place) *wire.Reply {
	r.Granted++
	l.Owner, l.Left, l.holds, l.Fence = &p, false, 1, r.Granted
	r.lead(l)
	return &wire.Reply{Code: wire.Code_OK, Fence: l.Fence, Holds: 1}
}

// lead notes who leads an election from now on.
func (r *Model) lead(l *Lock) {
	if !l.Election {
		return
	}
	change := wire.LeaderChange{Election: l.Name}
	if o := l.Owner; o != nil {
		change.Leader = &wire.Leader{Value: o.value, Fence: l.Fence, Session: o.Session, Member: r.session(o.Session[:]).Member}
	}
	r.leaders = append(r.leaders, change)
}

func (r *Model) lock(t wire.Ticket, c *wire.Lock) *wire.Reply {
	bad := checkName(c.Name)
	switch {
	case bad != nil:
		return bad
	case !c.Election && len(c.Value) > 0:
		return answer(wire.Code_INVALID)
	case len(c.Value) > MaxCandidate:
		return answer(wire.Code_TOO_LARGE)
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	place := Place{Session: wire.ID(c.Session), Handle: c.Handle, Ticket: t, value: c.Value}
	l := r.find(c.Election, c.Name)
	mine := l.heldBy(c.Session, c.Handle)
	if c.Fence != 0 && (!mine || l.Fence != c.Fence) {
		return answer(wire.Code_OWNERSHIP_LOST)
	}
	switch {
	case l == nil:
		l = &Lock{Name: c.Name, Election: c.Election}
		r.Locks = append(r.Locks, l)
		return r.grant(l, place)
	case l.Left && l.Owner.Session == place.Session:
		return r.grant(l, place)
	case mine && c.Reentrant:
		if c.Limit > 0 && l.holds >= c.Limit {
			return answer(wire.Code_LIMIT_REACHED)
		}
		l.holds++
		return &wire.Reply{Code: wire.Code_OK, Fence: l.Fence, Holds: l.holds}
	case c.Wait && len(l.Queue) >= MaxWaiters:
		return answer(wire.Code_TOO_LARGE)
	case c.Wait:
		r.arrivals++
		place.arrival = r.arrivals
		l.Queue = append(l.Queue, place)
		return answer(wire.Code_QUEUED)
	case l.Owner != nil:
		return answer(wire.Code_LOCKED)
	}
	return &wire.Reply{Code: wire.Code_LOCK_DELAY, Delay: l.until - r.Now}
}

// heldBy says whether the handle holds the lock; nobody's handle does, when
// the one who took it is gone.
func (l *Lock) heldBy(session []byte, handle uint64) bool {
	return l != nil && l.Owner != nil && !l.Left && bytes.Equal(l.Owner.Session[:], session) && l.Owner.Handle == handle
}

func (r *Model) unlock(c *wire.Unlock) *wire.Reply {
	if bad := checkName(c.Name); bad != nil {
		return bad
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	l := r.find(c.Election, c.Name)
	switch {
	case !l.heldBy(c.Session, c.Handle):
		return answer(wire.Code_NOT_HELD)
	case l.Fence != c.Fence:
		return answer(wire.Code_OWNERSHIP_LOST)
	}
	return r.giveBack(l)
}

func (r *Model) giveBack(l *Lock) *wire.Reply {
	reply := &wire.Reply{Code: wire.Code_OK, Fence: l.Fence, Holds: l.holds - 1}
	l.holds--
	if l.holds == 0 {
		r.free(l, 0)
	}
	return reply
}

// free takes a lock from its owner.
func (r *Model) free(l *Lock, delay int64) {
	l.Owner, l.Left, l.holds, l.Fence = nil, false, 0, 0
	if delay > 0 {
		l.until = later(r.Now, delay)
	} else {
		r.handOn(l)
	}
	if l.Owner == nil {
		r.lead(l)
	}
}

func (r *Model) freeLocks(session wire.ID, delay int64) {
	var held []*Lock
	for _, l := range r.Locks {
		if l.Owner != nil && l.Owner.Session == session {
			held = append(held, l)
		}
	}
	slices.SortFunc(held, func(a, b *Lock) int { return cmp.Compare(a.Fence, b.Fence) })
	for _, l := range held {
		r.free(l, delay)
	}
}

func (r *Model) proclaim(c *wire.Proclaim) *wire.Reply {
	if bad := checkName(c.Name); bad != nil {
		return bad
	}
	if len(c.Value) > MaxCandidate {
		return answer(wire.Code_TOO_LARGE)
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	l := r.find(true, c.Name)
	switch {
	case !l.heldBy(c.Session, c.Handle):
		return answer(wire.Code_NOT_HELD)
	case l.Fence != c.Fence:
		return answer(wire.Code_OWNERSHIP_LOST)
	case !bytes.Equal(l.Owner.value, c.Value):
		l.Owner.value = c.Value
		r.lead(l)
	}
	return &wire.Reply{Code: wire.Code_OK, Fence: l.Fence, Holds: l.holds}
}

func (r *Model) withdraw(inc wire.ID, c *wire.Withdraw) *wire.Reply {
	bad := checkName(c.Name)
	switch {
	case bad != nil:
		return bad
	case c.Space < 0 || c.Space > wire.Space_SEMAPHORE:
		return answer(wire.Code_INVALID)
	case len(c.Session) != 16:
		return answer(wire.Code_INVALID)
	case c.Space == wire.Space_SEMAPHORE:
		return r.withdrawPermits(wire.Ticket{Incarnation: inc, Seq: c.Seq}, c)
	}
	same := func(p Place) bool {
		return p.Ticket == wire.Ticket{Incarnation: inc, Seq: c.Seq} && p.Session == wire.ID(c.Session) && p.Handle == c.Handle
	}
	l := r.find(c.Space == wire.Space_ELECTION, c.Name)
	if l == nil {
		return answer(wire.Code_NOT_HELD)
	}
	for _, p := range l.Queue {
		if same(p) {
			r.leave([]Place{p}, wire.Code_WITHDRAWN)
			return answer(wire.Code_OK)
		}
	}
	if l.Owner != nil && same(*l.Owner) {
		l.Owner.Ticket = wire.Ticket{}
		return r.giveBack(l)
	}
	return answer(wire.Code_NOT_HELD)
}

func (r *Model) find(election bool, name string) *Lock {
	for _, l := range r.Locks {
		if l.Election == election && l.Name == name {
			return l
		}
	}
	return nil
}

func (l *Lock) key() string {
	if l.Election {
		return "e" + l.Name
	}
	return "l" + l.Name
}

func checkName(name string) *wire.Reply {
	switch {
	case len(name) > MaxName:
		return answer(wire.Code_TOO_LARGE)
	case name == "" || !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return answer(wire.Code_INVALID)
	}
	return nil
}
