package machine

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// Semaphores, DESIGN 4.6, as the reference reads them.

type refSemaphore struct {
	name    string
	limit   uint32
	resized bool
	permits []refPermit
	queue   []refPlace
}

// refPermit is an acquisition, or with until a slot that is held back.
type refPermit struct {
	session wire.ID
	ticket  wire.Ticket
	permits uint32
	fence   uint64
	until   int64
	left    bool
}

func (s *refSemaphore) free() int64 {
	free := int64(s.limit)
	for _, p := range s.permits {
		free -= int64(p.permits)
	}
	return free
}

func (r *reference) sem(name string) *refSemaphore {
	for _, s := range r.sems {
		if s.name == name {
			return s
		}
	}
	return nil
}

func (r *reference) acquire(t wire.Ticket, c *wire.Acquire) *wire.Reply {
	bad := refName(c.Name)
	switch {
	case bad != nil:
		return bad
	case c.Limit == 0 || c.Limit > MaxPermits || c.Permits == 0:
		return refCode(wire.Code_INVALID)
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	s := r.sem(c.Name)
	if s != nil && s.limit != c.Limit {
		return &wire.Reply{Code: wire.Code_LIMIT_MISMATCH, Limit: s.limit}
	}
	if c.Permits > c.Limit {
		return refCode(wire.Code_TOO_LARGE)
	}
	place := refPlace{session: wire.ID(c.Session), ticket: t, permits: c.Permits}
	if s == nil {
		s = &refSemaphore{name: c.Name, limit: c.Limit}
		r.sems = append(r.sems, s)
	}
	if i := s.leftBy(place); i >= 0 {
		s.permits = slices.Delete(s.permits, i, i+1)
		return r.take(s, place)
	}
	if len(s.queue) == 0 && s.free() >= int64(c.Permits) {
		return r.take(s, place)
	}
	if c.Wait {
		return r.queueUp(s, place)
	}
	return &wire.Reply{Code: s.refusal(c.Permits), Delay: s.delay(r.now, c.Permits)}
}

// leftBy finds the oldest acquisition that the session's earlier process left.
func (s *refSemaphore) leftBy(by refPlace) int {
	found := -1
	for i, p := range s.permits {
		if p.left && p.session == by.session && p.permits == by.permits && (found < 0 || p.fence < s.permits[found].fence) {
			found = i
		}
	}
	return found
}

func (r *reference) take(s *refSemaphore, p refPlace) *wire.Reply {
	r.granted++
	s.permits = append(s.permits, refPermit{session: p.session, ticket: p.ticket, permits: p.permits, fence: r.granted})
	return &wire.Reply{Code: wire.Code_OK, Fence: r.granted, Holds: p.permits}
}

func (r *reference) queueUp(s *refSemaphore, p refPlace) *wire.Reply {
	if len(s.queue) >= MaxWaiters {
		return refCode(wire.Code_TOO_LARGE)
	}
	r.arrivals++
	p.arrival = r.arrivals
	s.queue = append(s.queue, p)
	return refCode(wire.Code_QUEUED)
}

// delay is how long it takes until enough slots that are held back come free;
// 0 when they do not help.
func (s *refSemaphore) delay(now int64, permits uint32) int64 {
	if len(s.queue) > 0 {
		return 0
	}
	var slots []refPermit
	for _, p := range s.permits {
		if p.until != 0 {
			slots = append(slots, p)
		}
	}
	slices.SortFunc(slots, func(a, b refPermit) int { return cmp.Compare(a.until, b.until) })
	free := s.free()
	for _, p := range slots {
		if free += int64(p.permits); free >= int64(permits) {
			return p.until - now
		}
	}
	return 0
}

func (s *refSemaphore) refusal(permits uint32) wire.Code {
	free := s.free()
	for _, p := range s.permits {
		if p.until != 0 {
			free += int64(p.permits)
		}
	}
	if len(s.queue) == 0 && free >= int64(permits) {
		return wire.Code_LOCK_DELAY
	}
	return wire.Code_LOCKED
}

func (r *reference) release(c *wire.Release) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	if s := r.sem(c.Name); s != nil {
		for _, p := range s.permits {
			if p.fence == c.Fence && p.until == 0 && !p.left && bytes.Equal(p.session[:], c.Session) {
				r.putBack(s, p.fence, 0)
				return &wire.Reply{Code: wire.Code_OK, Fence: c.Fence}
			}
		}
	}
	return refCode(wire.Code_NOT_HELD)
}

// putBack ends an acquisition or a slot, or holds an acquisition back.
func (r *reference) putBack(s *refSemaphore, fence uint64, delay int64) {
	i := slices.IndexFunc(s.permits, func(p refPermit) bool { return p.fence == fence })
	p := s.permits[i]
	s.permits = slices.Delete(s.permits, i, i+1)
	if delay > 0 {
		s.permits = append(s.permits, refPermit{permits: p.permits, fence: fence, until: refAdd(r.now, delay)})
	}
	r.serve(s)
}

// serve grants to those at the head of the queue whom there is room for.
func (r *reference) serve(s *refSemaphore) {
	for len(s.queue) > 0 && int64(s.queue[0].permits) <= s.free() {
		next := s.queue[0]
		s.queue = slices.Clone(s.queue[1:])
		r.final(next.ticket, r.take(s, next))
	}
	if len(s.permits) == 0 && len(s.queue) == 0 && !s.resized {
		r.sems = slices.DeleteFunc(r.sems, func(o *refSemaphore) bool { return o == s })
	}
}

func (r *reference) freePermits(session wire.ID, delay int64) {
	type held struct {
		at    *refSemaphore
		fence uint64
	}
	var all []held
	for _, s := range r.sems {
		for _, p := range s.permits {
			if p.until == 0 && p.session == session {
				all = append(all, held{s, p.fence})
			}
		}
	}
	slices.SortFunc(all, func(a, b held) int { return cmp.Compare(a.fence, b.fence) })
	for _, h := range all {
		r.putBack(h.at, h.fence, delay)
	}
}

func (r *reference) resize(c *wire.Resize) *wire.Reply {
	if bad := refName(c.Name); bad != nil {
		return bad
	}
	if c.Limit == 0 || c.Limit > MaxPermits {
		return refCode(wire.Code_INVALID)
	}
	s := r.sem(c.Name)
	if s == nil {
		s = &refSemaphore{name: c.Name}
		r.sems = append(r.sems, s)
	}
	s.limit, s.resized = c.Limit, true
	for _, p := range slices.Clone(s.queue) {
		if p.permits > c.Limit {
			s.queue = slices.DeleteFunc(s.queue, func(o refPlace) bool { return o.arrival == p.arrival })
			r.final(p.ticket, &wire.Reply{Code: wire.Code_LIMIT_MISMATCH, Limit: c.Limit})
		}
	}
	r.serve(s)
	return refCode(wire.Code_OK)
}

func (r *reference) withdrawPermits(t wire.Ticket, c *wire.Withdraw) *wire.Reply {
	s := r.sem(c.Name)
	if s == nil {
		return refCode(wire.Code_NOT_HELD)
	}
	for _, p := range s.queue {
		if p.ticket == t && p.session == wire.ID(c.Session) {
			r.leave([]refPlace{p}, wire.Code_WITHDRAWN)
			r.serve(s)
			return refCode(wire.Code_OK)
		}
	}
	for _, p := range s.permits {
		if p.ticket == t && p.session == wire.ID(c.Session) {
			r.putBack(s, p.fence, 0)
			return &wire.Reply{Code: wire.Code_OK, Fence: p.fence}
		}
	}
	return refCode(wire.Code_NOT_HELD)
}
