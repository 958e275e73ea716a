package machine

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/wire"
)

// The table of DESIGN 4.5, as the reference reads it.

// handOn grants a free lock to the first that waits, or forgets it.
func (r *reference) handOn(name string) {
	l := r.find(name)
	if len(l.queue) == 0 {
		r.locks = slices.DeleteFunc(r.locks, func(o refLock) bool { return o.name == name })
		return
	}
	next := l.queue[0]
	l.queue = slices.Clone(l.queue[1:])
	r.final(next.ticket, r.grant(l, next))
}

func (r *reference) grant(l *refLock, p refPlace) *wire.Reply {
	r.granted++
	l.owner, l.holds, l.fence = &p, 1, r.granted
	return &wire.Reply{Code: wire.Code_OK, Index: r.index, Fence: l.fence, Holds: 1}
}

func (r *reference) lock(t wire.Ticket, c *wire.Lock) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	if len(c.Session) != 16 {
		return refCode(wire.Code_INVALID)
	}
	if r.session(c.Session) == nil {
		return refCode(wire.Code_SESSION_EXPIRED)
	}
	place := refPlace{session: wire.ID(c.Session), handle: c.Handle, ticket: t}
	l := r.find(c.Name)
	mine := l != nil && l.owner != nil && l.owner.session == place.session && l.owner.handle == place.handle
	if c.Fence != 0 && (!mine || l.fence != c.Fence) {
		return refCode(wire.Code_OWNERSHIP_LOST)
	}
	if l == nil {
		r.locks = append(r.locks, refLock{name: c.Name})
		return r.grant(r.find(c.Name), place)
	}
	if mine && c.Reentrant {
		if c.Limit > 0 && l.holds >= c.Limit {
			return refCode(wire.Code_LIMIT_REACHED)
		}
		l.holds++
		return &wire.Reply{Code: wire.Code_OK, Fence: l.fence, Holds: l.holds}
	}
	if c.Wait {
		r.arrivals++
		place.arrival = r.arrivals
		l.queue = append(l.queue, place)
		return refCode(wire.Code_QUEUED)
	}
	if l.owner != nil {
		return refCode(wire.Code_LOCKED)
	}
	return &wire.Reply{Code: wire.Code_LOCK_DELAY, Delay: l.until - r.now}
}

func (r *reference) unlock(c *wire.Unlock) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	if len(c.Session) != 16 {
		return refCode(wire.Code_INVALID)
	}
	if r.session(c.Session) == nil {
		return refCode(wire.Code_SESSION_EXPIRED)
	}
	l := r.find(c.Name)
	if l == nil || l.owner == nil || l.owner.session != wire.ID(c.Session) || l.owner.handle != c.Handle {
		return refCode(wire.Code_NOT_HELD)
	}
	if l.fence != c.Fence {
		return refCode(wire.Code_OWNERSHIP_LOST)
	}
	return r.giveBack(l)
}

func (r *reference) giveBack(l *refLock) *wire.Reply {
	reply := &wire.Reply{Code: wire.Code_OK, Fence: l.fence, Holds: l.holds - 1}
	l.holds--
	if l.holds == 0 {
		l.owner, l.fence = nil, 0
		r.handOn(l.name)
	}
	return reply
}

func (r *reference) withdraw(inc wire.ID, c *wire.Withdraw) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	if len(c.Session) != 16 {
		return refCode(wire.Code_INVALID)
	}
	same := func(p refPlace) bool {
		return p.ticket == wire.Ticket{Incarnation: inc, Seq: c.Seq} && p.session == wire.ID(c.Session) && p.handle == c.Handle
	}
	l := r.find(c.Name)
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

func refName(name string) *wire.Reply {
	switch {
	case len(name) > MaxName:
		return refCode(wire.Code_TOO_LARGE)
	case name == "" || !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return refCode(wire.Code_INVALID)
	}
	return nil
}
