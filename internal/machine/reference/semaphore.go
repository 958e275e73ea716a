package reference

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// Semaphores.

// Semaphore is a semaphore in use or resized.
type Semaphore struct {
	Name    string
	Limit   uint32
	Permits []Permit
	Queue   []Place
	resized bool
}

// Permit is an acquisition or, with until, permits under a lock-delay.
type Permit struct {
	Session   wire.ID
	Ticket    wire.Ticket
	Permits   uint32
	Fence     uint64
	Unclaimed bool
	Slots     []uint32
	until     int64
	End
}

func (s *Semaphore) free() int64 {
	free := int64(s.Limit)
	for _, p := range s.Permits {
		free -= int64(p.Permits)
	}
	return free
}

func (r *Model) Semaphore(name string) *Semaphore {
	for _, s := range r.Semaphores {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (r *Model) acquire(t wire.Ticket, c *wire.Acquire) *wire.Reply {
	bad := checkName(c.Name)
	switch {
	case bad != nil:
		return bad
	case c.Limit == 0 || c.Limit > MaxPermits || c.Permits == 0:
		return answer(wire.Code_INVALID)
	}
	end, bad := bounding{r}.wanted(c.MaxHold, true)
	if bad != nil {
		return bad
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	s := r.Semaphore(c.Name)
	if s != nil && s.Limit != c.Limit {
		return &wire.Reply{Code: wire.Code_LIMIT_MISMATCH, Limit: s.Limit}
	}
	place := Place{Session: wire.ID(c.Session), Ticket: t, Permits: c.Permits, End: end}
	if c.Permits > c.Limit && (r.Level < wire.LevelClaim || s == nil || s.unclaimed(place) < 0) {
		return answer(wire.Code_TOO_LARGE)
	}
	if s == nil {
		s = &Semaphore{Name: c.Name, Limit: c.Limit}
		r.Semaphores = append(r.Semaphores, s)
	}
	if i := s.unclaimed(place); i >= 0 {
		if c.Permits > c.Limit {
			jobs{r}.reached("a claim of more than the limit")
		}
		same := s.Permits[i].Slots
		s.Permits = slices.Delete(s.Permits, i, i+1)
		return r.take(s, place, same)
	}
	if len(s.Queue) == 0 && s.free() >= int64(c.Permits) {
		return r.take(s, place, s.number(r, place))
	}
	if c.Wait {
		return r.queueUp(s, place)
	}
	reply := &wire.Reply{Code: s.refusal(c.Permits), Delay: s.delay(r.Now, c.Permits)}
	if reply.Code == wire.Code_LOCKED {
		reply.Holder = r.permitHolder(s)
	}
	return reply
}

// permitHolder describes the acquisition with the smallest fence.
func (r *Model) permitHolder(s *Semaphore) (h *wire.Holder) {
	for _, p := range s.Permits {
		if p.until == 0 && (h == nil || p.Fence < h.Fence) {
			h = &wire.Holder{Session: p.Session[:], Fence: p.Fence}
			if s := r.session(p.Session[:]); s != nil {
				h.Member = s.Member
			}
		}
	}
	if h != nil && r.lateSession(wire.ID(h.Session)) != nil {
		return nil
	}
	return h
}

// unclaimed finds the session's oldest unclaimed acquisition of as many permits.
func (s *Semaphore) unclaimed(by Place) int {
	found := -1
	for i, p := range s.Permits {
		if p.Unclaimed && p.Session == by.Session && p.Permits == by.Permits && (found < 0 || p.Fence < s.Permits[found].Fence) {
			found = i
		}
	}
	return found
}

func (r *Model) take(s *Semaphore, p Place, numbers []uint32) *wire.Reply {
	r.Granted++
	end := bounding{r}.begin(p)
	s.Permits = append(s.Permits, Permit{Session: p.Session, Ticket: p.granted(), Permits: p.Permits, Fence: r.Granted, Slots: numbers, End: end})
	return end.state(&wire.Reply{Code: wire.Code_OK, Fence: r.Granted, Holds: p.Permits, Slots: numbers}, end.requested)
}

func (r *Model) queueUp(s *Semaphore, p Place) *wire.Reply {
	if len(s.Queue) >= MaxWaiters || r.queued(p.Ticket.Incarnation) >= MaxQueued {
		return answer(wire.Code_BUSY)
	}
	r.arrivals++
	p.arrival, p.Since = r.arrivals, r.stamp()
	s.Queue = append(s.Queue, p)
	reply := &wire.Reply{Code: wire.Code_QUEUED, Position: uint32(len(s.Queue)), Holder: r.permitHolder(s)}
	if atLeast(r.Level) >= wire.LevelSlots {
		reply.Holds = p.Permits
	}
	return reply
}

// delay returns the time until enough delayed permits are free; 0 if they are not
// enough.
func (s *Semaphore) delay(now int64, permits uint32) int64 {
	if len(s.Queue) > 0 {
		return 0
	}
	var slots []Permit
	for _, p := range s.Permits {
		if p.until != 0 {
			slots = append(slots, p)
		}
	}
	slices.SortFunc(slots, func(a, b Permit) int { return cmp.Compare(a.until, b.until) })
	free := s.free()
	for _, p := range slots {
		if free += int64(p.Permits); free >= int64(permits) {
			return max(0, p.until-now)
		}
	}
	return 0
}

func (s *Semaphore) refusal(permits uint32) wire.Code {
	free := s.free()
	for _, p := range s.Permits {
		if p.until != 0 {
			free += int64(p.Permits)
		}
	}
	if len(s.Queue) == 0 && free >= int64(permits) {
		return wire.Code_LOCK_DELAY
	}
	return wire.Code_LOCKED
}

func (r *Model) release(c *wire.Release) *wire.Reply {
	if bad := checkName(c.Name); bad != nil {
		return bad
	}
	if _, bad := r.live(c.Session); bad != nil {
		return bad
	}
	if s := r.Semaphore(c.Name); s != nil {
		for _, p := range s.Permits {
			if p.Fence == c.Fence && p.until == 0 && !p.Unclaimed && bytes.Equal(p.Session[:], c.Session) {
				defer r.traced(c.Trace)()
				r.putBack(s, p.Fence, 0)
				return &wire.Reply{Code: wire.Code_OK, Fence: c.Fence}
			}
		}
	}
	return answer(wire.Code_NOT_HELD)
}

// putBack releases an acquisition, or starts or ends its lock-delay.
func (r *Model) putBack(s *Semaphore, fence uint64, until int64) {
	i := slices.IndexFunc(s.Permits, func(p Permit) bool { return p.Fence == fence })
	p := s.Permits[i]
	s.Permits = slices.Delete(s.Permits, i, i+1)
	if until > r.Now {
		s.Permits = append(s.Permits, Permit{Permits: p.Permits, Fence: fence, Slots: p.Slots, until: until})
	}
	if p.until == 0 && (s.resized || len(s.Permits)+len(s.Queue) > 0) {
		s.remember(r, p)
	}
	r.serve(s)
}

// serve grants to the head of the queue while enough permits are free.
func (r *Model) serve(s *Semaphore) {
	for len(s.Queue) > 0 {
		if r.dismissDead(&s.Queue) {
			continue
		}
		if int64(s.Queue[0].Permits) > s.free() {
			break
		}
		next := s.Queue[0]
		s.Queue = slices.Clone(s.Queue[1:])
		reply := r.take(s, next, s.number(r, next))
		reply.Trace = r.trace
		r.final(next.Ticket, reply)
	}
	if len(s.Permits) == 0 && len(s.Queue) == 0 && !s.resized {
		r.Semaphores = slices.DeleteFunc(r.Semaphores, func(o *Semaphore) bool { return o == s })
		r.former = slices.DeleteFunc(r.former, func(f formerSlot) bool { return f.of == s })
	}
}

func (r *Model) resize(c *wire.Resize) *wire.Reply {
	if bad := checkName(c.Name); bad != nil {
		return bad
	}
	if c.Limit > MaxPermits {
		return answer(wire.Code_INVALID)
	}
	s := r.Semaphore(c.Name)
	if c.Limit == 0 {
		if s != nil && s.resized { // of another, a Resize to 0 changes nothing
			s.resized = false
			r.serve(s)
		}
		return answer(wire.Code_OK)
	}
	if s == nil {
		s = &Semaphore{Name: c.Name}
		r.Semaphores = append(r.Semaphores, s)
	}
	s.Limit, s.resized = c.Limit, true
	for _, p := range slices.Clone(s.Queue) {
		if p.Permits > c.Limit {
			s.Queue = slices.DeleteFunc(s.Queue, func(o Place) bool { return o.arrival == p.arrival })
			if r.lateSession(p.Session) != nil {
				r.quota--
				r.say(p.Ticket, wire.Code_SESSION_EXPIRED)
				continue
			}
			r.final(p.Ticket, &wire.Reply{Code: wire.Code_LIMIT_MISMATCH, Limit: c.Limit})
		}
	}
	r.serve(s)
	return answer(wire.Code_OK)
}
