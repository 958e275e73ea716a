package machine

import (
	"cmp"

	"github.com/conclave-go/conclave/internal/wire"
)

// lock is a lock or an election. It exists while it is held, or delayed; those
// who wait do so for one of the two. Its owner is a handle of a session: two
// handles of one session exclude each other.
type lock struct {
	key        string // durable; the name follows its first byte
	owner      *session
	handle     uint64
	holds      uint32
	left       bool // by a process that is gone: it has no handle
	fence      uint64
	ticket     wire.Ticket  // by which the hold began; zero once withdrawn
	leader     *wire.Leader // of an election that is held
	delayUntil int64        // 0 is no delay
	queue      list[waiter]
	held       link[lock] // in owner.holds
}

func (l *lock) name() string { return l.key[1:] }

func (l *lock) isElection() bool { return l.key[0] == electionKind }

func (l *lock) ownedBy(s *session, handle uint64) bool {
	return l.owner == s && l.handle == handle && !l.left
}

// space is where locks, or elections, are found by name.
func (m *Machine) space(election bool) map[string]*lock {
	if election {
		return m.elections
	}
	return m.locks
}

func (m *Machine) lock(inc *incarnation, seq uint64, c *wire.Lock) *wire.Reply {
	if r := cmp.Or(m.checkName(c.Name), m.checkCandidate(c)); r != nil {
		return r
	}
	s, refusal := m.live(c.Session)
	if s == nil {
		return refusal
	}
	l := m.space(c.Election)[c.Name]
	mine := l != nil && l.ownedBy(s, c.Handle)
	w := &waiter{lock: l, session: s, handle: c.Handle, value: c.Value, incarnation: inc, seq: seq}
	switch {
	case c.Fence != 0 && !(mine && l.fence == c.Fence):
		return m.reply(wire.Code_OWNERSHIP_LOST)
	case mine && c.Reentrant:
		return m.reenter(l, c.Limit)
	case l != nil && l.owner == s && l.left:
		return m.takeOver(l, w)
	case l == nil || c.Wait:
		return m.newPlace(w, c)
	case l.owner != nil:
		return m.reply(wire.Code_LOCKED)
	}
	r := m.reply(wire.Code_LOCK_DELAY)
	r.Delay = l.delayUntil - m.now
	return r
}

// newPlace grants a lock that does not exist, or queues for one that does.
func (m *Machine) newPlace(w *waiter, c *wire.Lock) *wire.Reply {
	if r := m.mayHaveMore(w.session); r != nil {
		return r
	}
	if w.lock != nil {
		if r := m.mayJoin(&w.lock.queue); r != nil {
			return r
		}
		return m.enqueue(w)
	}
	if m.fences >= maxFences {
		return m.exhausted()
	}
	l := &lock{key: lockKey(c.Election, c.Name)}
	m.space(c.Election)[l.name()] = l
	return m.grant(l, w)
}

// takeOver gives a hold that a former process has left behind to the session's
// present one. The lock is not free in between, so nobody who waits is passed
// over; the fence is new, in case that the former process still acts.
func (m *Machine) takeOver(l *lock, w *waiter) *wire.Reply {
	if m.fences >= maxFences {
		return m.exhausted()
	}
	l.owner.holds.remove(&l.held)
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
	l, refusal := m.holdOf(s, c.Election, c.Name, c.Handle, c.Fence)
	if l == nil {
		return refusal
	}
	return m.giveBack(l)
}

// holdOf returns the lock that the handle holds under the fence, or the refusal
// of a command by its holder.
func (m *Machine) holdOf(s *session, election bool, name string, handle, fence uint64) (*lock, *wire.Reply) {
	l := m.space(election)[name]
	switch {
	case l == nil || !l.ownedBy(s, handle):
		return nil, m.reply(wire.Code_NOT_HELD)
	case l.fence != fence:
		return nil, m.reply(wire.Code_OWNERSHIP_LOST)
	}
	return l, nil
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
	m.candidates -= l.leader.Bytes()
	l.owner, l.handle, l.holds, l.left, l.fence, l.ticket, l.leader = nil, 0, 0, false, 0, wire.Ticket{}, nil
	if delay > 0 {
		l.delayUntil = after(m.now, delay)
		m.delays.push(l)
		m.dirty.put(l.key, l)
	} else {
		m.grantHead(l)
	}
	if l.isElection() && l.owner == nil {
		m.leads(l)
	}
}

func (l *lock) ends() int64     { return l.delayUntil }
func (l *lock) durable() string { return l.key }

// over ends the lock-delay.
func (l *lock) over(m *Machine) {
	l.delayUntil = 0
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
	delete(m.space(l.isElection()), l.name())
	m.dirty.drop(l.key)
}

// grant makes w the owner of a lock that nobody else has, under a new fence.
func (m *Machine) grant(l *lock, w *waiter) *wire.Reply {
	l.owner, l.handle, l.holds, l.left = w.session, w.handle, 1, false
	l.fence = m.nextFence()
	l.ticket = w.ticket()
	w.session.holds.push(&l.held, l)
	m.dirty.put(l.key, l)
	if l.isElection() {
		m.elect(l, w.value)
		m.leads(l)
	}
	return m.holding(l)
}

// nextFence is for whoever has looked that there is one.
func (m *Machine) nextFence() uint64 {
	m.fences++
	return m.fence()
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
