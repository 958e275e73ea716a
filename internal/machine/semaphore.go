package machine

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// semaphore exists while somebody has or awaits permits of it, while a
// lock-delay holds some back, or for good once it was resized: a limit that was
// set on purpose must not be forgotten.
type semaphore struct {
	key     string // durable; the name follows its first byte
	limit   uint32
	resized bool

	shortened bool               // somebody has gone from the queue; see shortened
	taken     int64              // permits, held or held back
	delayed   int64              // permits, held back
	permits   list[permit]       // by fence
	byFence   map[uint64]*permit // held
	back      []*permit          // held back, the first to be freed first
	queue     list[waiter]
}

// permit is one acquisition of permits. It is held by a session, or held back
// by the lock-delay of one that is gone.
type permit struct {
	semaphore  *semaphore
	owner      *session // nil: held back by a lock-delay
	n          uint32
	left       bool // by a process that is gone
	fence      uint64
	ticket     wire.Ticket // by which it was acquired
	delayUntil int64

	inSemaphore link[permit]
	inSession   link[permit]
}

func (s *semaphore) name() string { return s.key[1:] }

func (s *semaphore) free() int64 { return int64(s.limit) - s.taken }

func (m *Machine) acquire(inc *incarnation, seq uint64, c *wire.Acquire) *wire.Reply {
	if r := cmp.Or(m.checkName(c.Name), m.checkLimit(c.Limit)); r != nil {
		return r
	}
	if c.Permits == 0 {
		return m.refuse(wire.Code_INVALID, "no permits are asked for; ask for at least 1")
	}
	owner, refusal := m.live(c.Session)
	if owner == nil {
		return refusal
	}
	s := m.semaphores[c.Name]
	w := &waiter{semaphore: s, session: owner, permits: c.Permits, incarnation: inc, seq: seq}
	switch {
	case s != nil && s.limit != c.Limit:
		return m.mismatch(s.limit)
	case c.Permits > c.Limit:
		return m.refuse(wire.Code_TOO_LARGE, "more permits are asked for than the limit")
	case s != nil:
		if p := s.leftBy(owner, c.Permits); p != nil {
			return m.takePermitOver(p, w)
		}
	}
	if r := m.mayHaveMore(owner); r != nil {
		return r
	}
	switch {
	case s == nil || s.queue.len == 0 && s.free() >= int64(c.Permits):
		return m.newPermit(w, c)
	case !c.Wait:
		return m.refusePermits(s, c.Permits)
	}
	if r := m.mayJoin(&s.queue); r != nil {
		return r
	}
	return m.enqueue(w)
}

// newPermit grants permits that are free.
func (m *Machine) newPermit(w *waiter, c *wire.Acquire) *wire.Reply {
	if m.fences >= maxFences {
		return m.exhausted()
	}
	if w.semaphore == nil {
		w.semaphore = m.newSemaphore(c.Name, c.Limit)
		m.dirty.put(w.semaphore.key, w.semaphore)
	}
	return m.grantPermits(w)
}

// refusePermits tells who does not wait what is in the way: others, or only
// lock-delays.
func (m *Machine) refusePermits(s *semaphore, n uint32) *wire.Reply {
	free := s.free()
	if s.queue.len > 0 || free+s.delayed < int64(n) {
		return m.reply(wire.Code_LOCKED)
	}
	for _, p := range s.back {
		if free += int64(p.n); free >= int64(n) {
			r := m.reply(wire.Code_LOCK_DELAY)
			r.Delay = p.delayUntil - m.now
			return r
		}
	}
	return m.reply(wire.Code_LOCKED)
}

// byEnd orders permits that are held back.
func byEnd(a, b *permit) int {
	return cmp.Or(cmp.Compare(a.delayUntil, b.delayUntil), cmp.Compare(a.fence, b.fence))
}

// holdBack puts p, which nobody holds, among those that a lock-delay holds back.
func (s *semaphore) holdBack(p *permit) {
	s.delayed += int64(p.n)
	i, _ := slices.BinarySearchFunc(s.back, p, byEnd)
	s.back = slices.Insert(s.back, i, p)
}

func (s *semaphore) setFree(p *permit) {
	s.delayed -= int64(p.n)
	i, _ := slices.BinarySearchFunc(s.back, p, byEnd)
	s.back = slices.Delete(s.back, i, i+1)
}

// leftBy finds what a former process of the session has acquired, and nobody has
// taken over yet.
func (s *semaphore) leftBy(owner *session, n uint32) *permit {
	if owner.left == 0 {
		return nil
	}
	for at := owner.permits.first; at != nil; at = at.next {
		if p := at.of; p.left && p.semaphore == s && p.n == n {
			return p
		}
	}
	return nil
}

func (m *Machine) takePermitOver(p *permit, w *waiter) *wire.Reply {
	if m.fences >= maxFences {
		return m.exhausted()
	}
	m.forgetPermit(p)
	return m.grantPermits(w)
}

func (m *Machine) grantPermits(w *waiter) *wire.Reply {
	p := &permit{semaphore: w.semaphore, owner: w.session, n: w.permits, fence: m.nextFence(), ticket: w.ticket()}
	p.semaphore.add(p)
	p.owner.permits.push(&p.inSession, p)
	m.dirty.put(p.key(), p)
	r := m.reply(wire.Code_OK)
	r.Fence, r.Holds = p.fence, p.n
	return r
}

func (m *Machine) newSemaphore(name string, limit uint32) *semaphore {
	s := &semaphore{key: semaphoreKey(name), limit: limit, byFence: make(map[uint64]*permit)}
	m.semaphores[name] = s
	return s
}

func (s *semaphore) add(p *permit) {
	s.taken += int64(p.n)
	s.permits.push(&p.inSemaphore, p)
	if p.owner == nil {
		s.holdBack(p)
	} else {
		s.byFence[p.fence] = p
	}
}

func (m *Machine) releasePermit(c *wire.Release) *wire.Reply {
	if r := m.checkName(c.Name); r != nil {
		return r
	}
	owner, refusal := m.live(c.Session)
	if owner == nil {
		return refusal
	}
	sem := m.semaphores[c.Name]
	if sem == nil {
		return m.reply(wire.Code_NOT_HELD)
	}
	p := sem.byFence[c.Fence]
	if p == nil || p.owner != owner || p.left {
		return m.reply(wire.Code_NOT_HELD)
	}
	return m.givePermitBack(p)
}

func (m *Machine) withdrawPermit(name string, session wire.ID, t wire.Ticket) *wire.Reply {
	if owner := m.sessions[session]; owner != nil {
		for at := owner.permits.last; at != nil; at = at.prev { // it is a recent one
			if p := at.of; p.ticket == t && p.semaphore.name() == name {
				return m.givePermitBack(p)
			}
		}
	}
	return m.reply(wire.Code_NOT_HELD)
}

func (m *Machine) givePermitBack(p *permit) *wire.Reply {
	r := m.reply(wire.Code_OK)
	r.Fence = p.fence
	m.forgetPermit(p)
	m.serve(p.semaphore)
	return r
}

// leftOne counts p among those that a process left behind.
func (p *permit) leftOne() int {
	if p.left {
		return 1
	}
	return 0
}

// forgetPermit takes an acquisition out of the books.
func (m *Machine) forgetPermit(p *permit) {
	s := p.semaphore
	s.taken -= int64(p.n)
	s.permits.remove(&p.inSemaphore)
	if p.owner == nil {
		s.setFree(p)
	} else {
		delete(s.byFence, p.fence)
		p.owner.permits.remove(&p.inSession)
		p.owner.left -= p.leftOne()
	}
	m.dirty.drop(p.key())
}

// endPermit gives the permits of a session that ends back, at once or after the
// delay.
func (m *Machine) endPermit(p *permit, delay int64) {
	if delay == 0 {
		m.forgetPermit(p)
	} else {
		p.owner.permits.remove(&p.inSession)
		delete(p.semaphore.byFence, p.fence)
		p.owner, p.left, p.ticket = nil, false, wire.Ticket{}
		p.delayUntil = after(m.now, delay)
		p.semaphore.holdBack(p)
		m.delays.push(p)
		m.dirty.put(p.key(), p)
	}
	m.serve(p.semaphore)
}

func (p *permit) ends() int64     { return p.delayUntil }
func (p *permit) durable() string { return p.key() }

// over ends the lock-delay.
func (p *permit) over(m *Machine) {
	m.forgetPermit(p)
	m.serve(p.semaphore)
}

// serve grants the head of the queue what it asks for as long as that is free,
// and forgets a semaphore that nobody uses.
func (m *Machine) serve(s *semaphore) {
	for w := s.queue.head(); w != nil && int64(w.permits) <= s.free(); w = s.queue.head() {
		m.dequeue(w)
		if m.fences < maxFences {
			m.settle(w, m.grantPermits(w))
		} else {
			m.settle(w, m.exhausted())
		}
	}
	if s.queue.len == 0 && s.permits.len == 0 && !s.resized && m.semaphores[s.name()] == s {
		delete(m.semaphores, s.name())
		m.dirty.drop(s.key)
	}
}

// resize sets the limit that all have to agree on. Whoever waits for more than
// that would wait for ever.
func (m *Machine) resize(c *wire.Resize) *wire.Reply {
	if r := cmp.Or(m.checkName(c.Name), m.checkLimit(c.Limit)); r != nil {
		return r
	}
	s := m.semaphores[c.Name]
	if (s == nil || !s.resized) && m.resized >= MaxResized {
		return m.refuse(wire.Code_TOO_LARGE, "too many semaphores were resized; use fewer names")
	}
	if s == nil {
		s = m.newSemaphore(c.Name, c.Limit)
	}
	if !s.resized {
		s.resized = true
		m.resized++
	}
	s.limit = c.Limit
	m.dirty.put(s.key, s)
	for _, w := range s.queue.appendTo(nil) {
		if w.permits > c.Limit {
			m.dequeue(w)
			m.settle(w, m.mismatch(c.Limit))
		}
	}
	m.serve(s)
	return m.reply(wire.Code_OK)
}

func (m *Machine) mismatch(limit uint32) *wire.Reply {
	r := m.reply(wire.Code_LIMIT_MISMATCH)
	r.Limit = limit
	return r
}

func (m *Machine) checkLimit(limit uint32) *wire.Reply {
	if limit == 0 || limit > MaxPermits {
		return m.refuse(wire.Code_INVALID, "the limit is out of range; give 1 to 2^31-1")
	}
	return nil
}
