package machine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// waiter is a place in the queue for a lock, an election or a semaphore.
// Waiters are served in the order of their positions, which is the order of the
// log.
type waiter struct {
	lock        *lock      // or the election
	semaphore   *semaphore // one of the two
	session     *session
	handle      uint64       // of a lock
	permits     uint32       // of a semaphore
	value       []byte       // of a candidate
	incarnation *incarnation // with seq: the ticket that the grant answers
	seq         uint64
	position    uint64

	inQueue   link[waiter]
	inSession link[waiter]
}

func (w *waiter) ticket() wire.Ticket {
	return wire.Ticket{Incarnation: w.incarnation.id, Seq: w.seq}
}

// of is the durable key of what w waits for.
func (w *waiter) of() string {
	if w.semaphore != nil {
		return w.semaphore.key
	}
	return w.lock.key
}

func (w *waiter) queue() *list[waiter] {
	if w.semaphore != nil {
		return &w.semaphore.queue
	}
	return &w.lock.queue
}

// byPosition returns the waiters in the order of their positions.
func byPosition(waiting map[uint64]*waiter) []*waiter {
	return slices.SortedFunc(maps.Values(waiting), func(a, b *waiter) int {
		return cmp.Compare(a.position, b.position)
	})
}

// mayJoin refuses a place to who has too many, or in a queue that is too long.
func (m *Machine) mayJoin(queue *list[waiter]) *wire.Reply {
	if queue.len >= MaxWaiters {
		return m.refuse(wire.Code_TOO_LARGE, "too many wait for it")
	}
	return nil
}

// enqueue gives w, which says what it waits for, the next place.
func (m *Machine) enqueue(w *waiter) *wire.Reply {
	m.positions++
	w.position = m.positions
	m.candidates += len(w.value)
	w.join()
	m.dirty.put(w.key(), w)
	return m.reply(wire.Code_QUEUED)
}

// join links the waiter into the queue, its session and its incarnation.
func (w *waiter) join() {
	w.queue().push(&w.inQueue, w)
	w.session.waiters.push(&w.inSession, w)
	w.incarnation.waiting[w.seq] = w
}

func (m *Machine) dequeue(w *waiter) {
	w.queue().remove(&w.inQueue)
	w.session.waiters.remove(&w.inSession)
	delete(w.incarnation.waiting, w.seq)
	m.candidates -= len(w.value)
	m.dirty.drop(w.key())
}

// shortened notes the semaphores from whose queues somebody has gone: whoever
// was behind may fit now. A lock's queue has no such case.
type shortened []*semaphore

func (s *shortened) by(w *waiter) {
	if w.semaphore != nil && !w.semaphore.shortened {
		w.semaphore.shortened = true
		*s = append(*s, w.semaphore)
	}
}

func (m *Machine) serveAll(shortened shortened) {
	for _, s := range shortened {
		s.shortened = false
		m.serve(s)
	}
}

// withdraw takes back a Lock or an Acquire of the calling incarnation: its queue
// place, or what it was granted. That then no longer counts as begun by that
// ticket, so that withdrawing twice takes one hold.
func (m *Machine) withdraw(inc *incarnation, c *wire.Withdraw) *wire.Reply {
	if r := m.checkName(c.Name); r != nil {
		return r
	}
	id, ok := wire.IDFrom(c.Session)
	if !ok {
		return m.refuse(wire.Code_INVALID, "the session's ID is not 16 bytes")
	}
	key, ok := spaceKey(c.Space, c.Name)
	if !ok {
		return m.refuse(wire.Code_INVALID, "the space is not known to this version")
	}
	if w := inc.waiting[c.Seq]; w != nil && w.of() == key && w.session.id == id && (w.lock == nil || w.handle == c.Handle) {
		m.dismiss(w, wire.Code_WITHDRAWN)
		return m.reply(wire.Code_OK)
	}
	t := wire.Ticket{Incarnation: inc.id, Seq: c.Seq}
	if c.Space == wire.Space_SEMAPHORE {
		return m.withdrawPermit(c.Name, id, t)
	}
	s, l := m.sessions[id], m.space(c.Space == wire.Space_ELECTION)[c.Name]
	if s == nil || l == nil || !l.ownedBy(s, c.Handle) || l.ticket != t {
		return m.reply(wire.Code_NOT_HELD)
	}
	l.ticket = wire.Ticket{}
	return m.giveBack(l)
}

// dismiss takes one waiter out of its queue, with that as its last outcome.
func (m *Machine) dismiss(w *waiter, code wire.Code) {
	m.dequeue(w)
	m.settle(w, m.reply(code))
	if w.semaphore != nil {
		m.serve(w.semaphore)
	}
}
