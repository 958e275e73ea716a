package machine

import (
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// Incarnations and sessions, DESIGN 4.2 and 4.3, as the reference reads them.

func (r *reference) register(id wire.ID, floor uint64, c *wire.Register) *wire.Reply {
	if c.Ttl < MinTTL || c.Ttl > MaxTTL || c.Member == 0 || id == (wire.ID{}) {
		return refCode(wire.Code_INVALID)
	}
	if inc := r.inc(id); inc != nil {
		if inc.member != c.Member {
			return refCode(wire.Code_INVALID)
		}
		return refCode(wire.Code_OK)
	}
	for _, m := range r.members {
		if m.id == c.Member && m.last == id {
			return refCode(wire.Code_UNKNOWN_INCARNATION)
		}
		if m.id == c.Member && (m.boot > c.Boot || m.boot == c.Boot && m.attempt >= c.Attempt) {
			return refCode(wire.Code_STALE_BOOT)
		}
	}
	for _, m := range r.members {
		if m.id == c.Member && r.inc(m.last) != nil {
			r.forget(m.last, true)
		}
	}
	r.members = slices.DeleteFunc(r.members, func(m refMember) bool { return m.id == c.Member })
	r.members = append(r.members, refMember{id: c.Member, boot: c.Boot, attempt: c.Attempt, last: id})
	r.incs = append(r.incs, refIncarnation{id: id, member: c.Member, ttl: c.Ttl, renewed: r.now, floor: floor})
	return refCode(wire.Code_OK)
}

// forget ends an incarnation, its sessions, and its places under other
// sessions.
func (r *reference) forget(id wire.ID, invalidated bool) {
	r.end(r.bound(id), invalidated)
	var places []refPlace
	for _, l := range r.locks {
		for _, p := range l.queue {
			if p.ticket.Incarnation == id {
				places = append(places, p)
			}
		}
	}
	r.leave(places, wire.Code_WITHDRAWN)
	r.incs = slices.DeleteFunc(r.incs, func(i refIncarnation) bool { return i.id == id })
}

func (r *reference) open(inc *refIncarnation, c *wire.OpenSession) *wire.Reply {
	switch {
	case len(c.Id) != 16 || wire.ID(c.Id) == (wire.ID{}):
		return refCode(wire.Code_INVALID)
	case len(c.Name) > MaxName:
		return refCode(wire.Code_TOO_LARGE)
	case strings.ContainsRune(c.Name, 0) || c.Ttl < MinTTL || c.Ttl > MaxTTL || c.LockDelay < 0 || c.LockDelay > MaxLockDelay:
		return refCode(wire.Code_INVALID)
	}
	if s := r.session(c.Id); s != nil {
		if s.inc != inc.id {
			return refCode(wire.Code_INVALID)
		}
		return refCode(wire.Code_OK)
	}
	inc.renewed = r.now
	r.sessions = append(r.sessions, refSession{
		id: wire.ID(c.Id), inc: inc.id, ttl: c.Ttl, delay: c.LockDelay, created: int64(r.index),
	})
	return refCode(wire.Code_OK)
}

func (r *reference) close(c *wire.CloseSession) *wire.Reply {
	if len(c.Id) != 16 {
		return refCode(wire.Code_INVALID)
	}
	s := r.session(c.Id)
	if s == nil {
		return refCode(wire.Code_SESSION_EXPIRED)
	}
	r.end([]refSession{*s}, !c.Graceful)
	return refCode(wire.Code_OK)
}

// end ends sessions at one moment: first they are dead, then their queue
// places go, then their holds, each in order of arrival.
func (r *reference) end(gone []refSession, invalidated bool) {
	for _, s := range gone {
		r.sessions = slices.DeleteFunc(r.sessions, func(o refSession) bool { return o.id == s.id })
		r.ended = append(r.ended, wire.Ended{Incarnation: s.inc, Session: s.id})
	}
	for _, s := range gone {
		var places []refPlace
		for _, l := range r.locks {
			for _, p := range l.queue {
				if p.session == s.id {
					places = append(places, p)
				}
			}
		}
		r.leave(places, wire.Code_SESSION_EXPIRED)
	}
	for _, s := range gone {
		var held []refLock
		for _, l := range r.locks {
			if l.owner != nil && l.owner.session == s.id {
				held = append(held, l)
			}
		}
		slices.SortFunc(held, func(a, b refLock) int { return sign(a.fence < b.fence) })
		for _, l := range held {
			at := r.find(l.name)
			at.owner, at.holds, at.fence = nil, 0, 0
			if invalidated && s.delay > 0 {
				at.until = refAdd(r.now, s.delay)
			} else {
				r.handOn(l.name)
			}
		}
	}
}

func (r *reference) leave(places []refPlace, code wire.Code) {
	slices.SortFunc(places, func(a, b refPlace) int { return sign(a.arrival < b.arrival) })
	for _, p := range places {
		for i := range r.locks {
			q := &r.locks[i].queue
			*q = slices.DeleteFunc(*q, func(o refPlace) bool { return o.arrival == p.arrival })
		}
		r.say(p.ticket, code)
	}
}
