package machine

import "github.com/conclave-go/conclave/internal/wire"

// lock exists while it is held, or delayed; those who wait do so for one of the
// two. Its owner is a handle of a session: two handles of one session exclude
// each other.
type lock struct {
	key        string // durable; the name follows its first byte
	owner      *session
	handle     uint64
	holds      uint32
	fence      uint64
	ticket     wire.Ticket // by which the hold began; zero once withdrawn
	delayUntil int64       // 0 is no delay
	queue      list[waiter]
	held       link[lock] // in owner.holds
}

func (l *lock) name() string { return l.key[1:] }

func (l *lock) ownedBy(s *session, handle uint64) bool {
	return l.owner == s && l.handle == handle
}

func (m *Machine) lock(inc *incarnation, seq uint64, c *wire.Lock) *wire.Reply {
	if r := m.checkName(c.Name); r != nil {
		return r
	}
	s, refusal := m.live(c.Session)
	if s == nil {
		return refusal
	}
	l := m.locks[c.Name]
	mine := l != nil && l.ownedBy(s, c.Handle)
	switch {
	case c.Fence != 0 && !(mine && l.fence == c.Fence):
		return m.reply(wire.Code_OWNERSHIP_LOST)
	case mine && c.Reentrant:
		return m.reenter(l, c.Limit)
	case l == nil || c.Wait:
		return m.newPlace(&waiter{session: s, handle: c.Handle, incarnation: inc, seq: seq}, l, c.Name)
	case l.owner != nil:
		return m.reply(wire.Code_LOCKED)
	}
	r := m.reply(wire.Code_LOCK_DELAY)
	r.Delay = l.delayUntil - m.now
	return r
}

// newPlace grants a lock that does not exist, or queues for one that does.
func (m *Machine) newPlace(w *waiter, l *lock, name string) *wire.Reply {
	switch {
	case w.session.places() >= MaxPlaces:
		return m.refuse(wire.Code_TOO_LARGE, "the session holds and awaits too many locks")
	case l != nil && l.queue.len >= MaxWaiters:
		return m.refuse(wire.Code_TOO_LARGE, "too many wait for the lock")
	case l != nil:
		m.enqueue(l, w)
		return m.reply(wire.Code_QUEUED)
	case m.fences >= maxFences:
		return m.exhausted()
	}
	l = &lock{key: lockKey(name)}
	m.locks[l.name()] = l
	return m.grant(l, w)
}

func (m *Machine) reenter(l *lock, limit uint32) *wire.Reply {
	if l.holds >= MaxHolds || limit != 0 && l.holds >= limit {
		return m.reply(wire.Code_LIMIT_REACHED)
	}
	l.holds++
	m.dirty.put(l.key, l)
	return m.holding(l)
}

func (m *Machine) unlock(c *wire.Unlock) *wire.Reply {
	if r := m.checkName(c.Name); r != nil {
		return r
	}
	s, refusal := m.live(c.Session)
	if s == nil {
		return refusal
	}
	l := m.locks[c.Name]
	switch {
	case l == nil || !l.ownedBy(s, c.Handle):
		return m.reply(wire.Code_NOT_HELD)
	case l.fence != c.Fence:
		return m.reply(wire.Code_OWNERSHIP_LOST)
	}
	return m.giveBack(l)
}

// giveBack takes one hold from the owner; with the last the lock is handed on.
func (m *Machine) giveBack(l *lock) *wire.Reply {
	l.holds--
	m.dirty.put(l.key, l)
	r := m.holding(l)
	if l.holds == 0 {
		m.release(l, 0)
	}
	return r
}

// release ends a hold. The lock goes to the head of its queue, at once or
// after the delay.
func (m *Machine) release(l *lock, delay int64) {
	l.owner.holds.remove(&l.held)
	l.owner, l.handle, l.holds, l.fence, l.ticket = nil, 0, 0, 0, wire.Ticket{}
	if delay > 0 {
		l.delayUntil = after(m.now, delay)
		m.delays.push(l)
		m.dirty.put(l.key, l)
		return
	}
	m.grantHead(l)
}

// grantHead grants a free lock to the first in its queue, or drops it.
func (m *Machine) grantHead(l *lock) {
	for w := l.queue.head(); w != nil; w = l.queue.head() {
		m.dequeue(w)
		if m.fences < maxFences {
			m.settle(w, m.grant(l, w))
			return
		}
		m.settle(w, m.exhausted())
	}
	delete(m.locks, l.name())
	m.dirty.drop(l.key)
}

// grant makes w the owner of a free lock, under a new fence.
func (m *Machine) grant(l *lock, w *waiter) *wire.Reply {
	m.fences++
	l.owner, l.handle, l.holds = w.session, w.handle, 1
	l.fence = m.fence()
	l.ticket = w.ticket()
	w.session.holds.push(&l.held, l)
	m.dirty.put(l.key, l)
	return m.holding(l)
}

// fence is the largest given out so far.
func (m *Machine) fence() uint64 { return uint64(m.epoch)<<48 | m.fences }

// holding is the reply that states the hold as it is.
func (m *Machine) holding(l *lock) *wire.Reply {
	r := m.reply(wire.Code_OK)
	r.Fence, r.Holds = l.fence, l.holds
	return r
}

// exhausted refuses rather than giving a fence twice.
func (m *Machine) exhausted() *wire.Reply {
	return m.refuse(wire.Code_TOO_LARGE, "all fences of this epoch are used; raise the epoch by recovery")
}
