package machine

import (
	"bytes"
	"cmp"
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
	if m := r.member(c.Member); m != nil {
		if m.left {
			return refCode(wire.Code_LEFT)
		}
		if m.last == id {
			return refCode(wire.Code_UNKNOWN_INCARNATION)
		}
		if m.boot > c.Boot || m.boot == c.Boot && m.attempt >= c.Attempt {
			return refCode(wire.Code_STALE_BOOT)
		}
		if r.inc(m.last) != nil {
			r.forget(m.last, true)
		}
	}
	r.members = slices.DeleteFunc(r.members, func(m refMember) bool { return m.id == c.Member })
	r.members = append(r.members, refMember{id: c.Member, boot: c.Boot, attempt: c.Attempt, last: id})
	r.incs = append(r.incs, refIncarnation{id: id, member: c.Member, ttl: c.Ttl, renewed: r.now, floor: floor})
	return refCode(wire.Code_OK)
}

func (r *reference) member(id uint64) *refMember {
	for i := range r.members {
		if r.members[i].id == id {
			return &r.members[i]
		}
	}
	return nil
}

// forget ends an incarnation, its sessions but for those without a TTL, and
// its places under other sessions.
func (r *reference) forget(id wire.ID, invalidated bool) {
	var gone []*refSession
	for _, s := range r.bound(id) {
		if s.ttl > 0 {
			gone = append(gone, s)
		}
	}
	r.end(gone, invalidated)
	for _, s := range r.bound(id) {
		s.inc = wire.ID{}
		r.ended = append(r.ended, wire.Ended{Incarnation: id, Session: s.id, Unbound: true})
	}
	left := r.leave(r.places(func(p refPlace) bool { return p.ticket.Incarnation == id }), wire.Code_WITHDRAWN)
	for _, s := range left {
		r.serve(s)
	}
	r.incs = slices.DeleteFunc(r.incs, func(i refIncarnation) bool { return i.id == id })
}

// depart lets the member of an incarnation go, with all its sessions, those of
// no process included, and its checks.
func (r *reference) depart(inc *refIncarnation) *wire.Reply {
	id, member := inc.id, inc.member
	var gone []*refSession
	for _, s := range r.sessions {
		if s.member == member {
			gone = append(gone, s)
		}
	}
	slices.SortFunc(gone, byAge)
	r.end(gone, true)
	r.checks = slices.DeleteFunc(r.checks, func(c *refCheck) bool { return c.member == member })
	r.member(member).left = true
	r.forget(id, true)
	return refCode(wire.Code_OK)
}

// left returns the members that have left, ascending.
func (r *reference) left() (left []uint64) {
	for _, m := range r.members {
		if m.left {
			left = append(left, m.id)
		}
	}
	slices.Sort(left)
	return left
}

func (r *reference) open(inc *refIncarnation, c *wire.OpenSession) *wire.Reply {
	if bad := refSessionFields(c); bad != nil {
		return bad
	}
	if s := r.session(c.Id); s != nil {
		if s.inc != inc.id {
			return refCode(wire.Code_INVALID)
		}
		return refCode(wire.Code_OK)
	}
	if len(r.sessions) >= MaxAllSessions || len(r.bound(inc.id)) >= MaxSessions {
		return refCode(wire.Code_TOO_LARGE)
	}
	if bad := r.lookAt(inc.member, c.Checks); bad != nil {
		return bad
	}
	inc.renewed = r.now
	r.sessions = append(r.sessions, &refSession{
		id: wire.ID(c.Id), inc: inc.id, member: inc.member, ttl: c.Ttl, delay: c.LockDelay,
		created: r.index, behavior: c.Behavior, checks: c.Checks,
	})
	return refCode(wire.Code_OK)
}

func refSessionFields(c *wire.OpenSession) *wire.Reply {
	switch {
	case len(c.Id) != 16 || wire.ID(c.Id) == (wire.ID{}):
		return refCode(wire.Code_INVALID)
	case len(c.Name) > MaxName:
		return refCode(wire.Code_TOO_LARGE)
	case strings.ContainsRune(c.Name, 0):
		return refCode(wire.Code_INVALID)
	case c.Ttl != 0 && (c.Ttl < MinTTL || c.Ttl > MaxTTL):
		return refCode(wire.Code_INVALID)
	case c.LockDelay < 0 || c.LockDelay > MaxLockDelay:
		return refCode(wire.Code_INVALID)
	case c.Behavior != wire.Behavior_RELEASE && c.Behavior != wire.Behavior_DELETE:
		return refCode(wire.Code_INVALID)
	case len(c.Checks) > MaxSessionChecks:
		return refCode(wire.Code_TOO_LARGE)
	}
	for i, name := range c.Checks {
		if bad := refName(name); bad != nil {
			return bad
		}
		if slices.Contains(c.Checks[:i], name) {
			return refCode(wire.Code_INVALID)
		}
	}
	return nil
}

func (r *reference) attach(inc *refIncarnation, c *wire.AttachSession) *wire.Reply {
	s, bad := r.live(c.Id)
	switch {
	case bad != nil:
		return bad
	case s.ttl != 0:
		return refCode(wire.Code_INVALID)
	case s.inc == inc.id:
		return refCode(wire.Code_OK)
	case s.inc != (wire.ID{}):
		return refCode(wire.Code_LOCKED)
	case len(r.bound(inc.id)) >= MaxSessions:
		return refCode(wire.Code_TOO_LARGE)
	}
	if bad := r.lookAt(inc.member, s.checks); bad != nil {
		return bad
	}
	s.inc, s.member = inc.id, inc.member
	for _, l := range r.locks {
		if l.owner != nil && l.owner.session == s.id {
			l.left, l.owner.ticket = true, wire.Ticket{}
		}
	}
	for _, sem := range r.sems {
		for i := range sem.permits {
			if p := &sem.permits[i]; p.until == 0 && p.session == s.id {
				p.left, p.ticket = true, wire.Ticket{}
			}
		}
	}
	return refCode(wire.Code_OK)
}

func (r *reference) close(c *wire.CloseSession) *wire.Reply {
	s, bad := r.live(c.Id)
	if bad != nil {
		return bad
	}
	r.end([]*refSession{s}, !c.Graceful)
	return refCode(wire.Code_OK)
}

// end ends sessions at one moment: first they are dead, then their queue
// places go, then what they hold, each in order of arrival.
func (r *reference) end(gone []*refSession, invalidated bool) {
	for _, s := range gone {
		r.sessions = slices.DeleteFunc(r.sessions, func(o *refSession) bool { return o == s })
		r.ended = append(r.ended, wire.Ended{Incarnation: s.inc, Session: s.id})
	}
	var left []*refSemaphore
	for _, s := range gone {
		mine := r.places(func(p refPlace) bool { return p.session == s.id })
		left = append(left, r.leave(mine, wire.Code_SESSION_EXPIRED)...)
	}
	for _, s := range gone {
		delay := int64(0)
		if invalidated {
			delay = s.delay
		}
		r.freeLocks(s.id, delay)
		r.freePermits(s.id, delay)
		r.freeKeys(s, delay)
	}
	for _, s := range left {
		r.serve(s)
	}
}

// places returns the queue places that are meant, by arrival.
func (r *reference) places(meant func(refPlace) bool) []refPlace {
	var places []refPlace
	add := func(queue []refPlace) {
		for _, p := range queue {
			if meant(p) {
				places = append(places, p)
			}
		}
	}
	for _, l := range r.locks {
		add(l.queue)
	}
	for _, s := range r.sems {
		add(s.queue)
	}
	slices.SortFunc(places, func(a, b refPlace) int { return cmp.Compare(a.arrival, b.arrival) })
	return places
}

// leave removes places and returns the semaphores that they were at.
func (r *reference) leave(places []refPlace, code wire.Code) (left []*refSemaphore) {
	for _, p := range places {
		same := func(o refPlace) bool { return o.arrival == p.arrival }
		for _, l := range r.locks {
			l.queue = slices.DeleteFunc(l.queue, same)
		}
		for _, s := range r.sems {
			before := len(s.queue)
			if s.queue = slices.DeleteFunc(s.queue, same); len(s.queue) < before {
				left = append(left, s)
			}
		}
		r.say(p.ticket, code)
	}
	return left
}

// live finds a session, or the refusal of a command under it.
func (r *reference) live(id []byte) (*refSession, *wire.Reply) {
	if len(id) != 16 {
		return nil, refCode(wire.Code_INVALID)
	}
	if s := r.session(id); s != nil {
		return s, nil
	}
	return nil, refCode(wire.Code_SESSION_EXPIRED)
}

func (r *reference) session(id []byte) *refSession {
	for _, s := range r.sessions {
		if bytes.Equal(s.id[:], id) {
			return s
		}
	}
	return nil
}

// bound returns the sessions of an incarnation, by creation.
func (r *reference) bound(inc wire.ID) []*refSession {
	var bound []*refSession
	for _, s := range r.sessions {
		if s.inc == inc {
			bound = append(bound, s)
		}
	}
	slices.SortFunc(bound, byAge)
	return bound
}

func byAge(a, b *refSession) int {
	return cmp.Or(cmp.Compare(a.created, b.created), bytes.Compare(a.id[:], b.id[:]))
}
