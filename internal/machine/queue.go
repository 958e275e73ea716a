package machine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// waiter is a place in the queue for a lock. Waiters are served in the order
// of their positions, which is the order of the log.
type waiter struct {
	lock        *lock
	session     *session
	handle      uint64
	incarnation *incarnation // with seq: the ticket that the grant answers
	seq         uint64
	position    uint64

	inQueue   link[waiter]
	inSession link[waiter]
}

func (w *waiter) ticket() wire.Ticket {
	return wire.Ticket{Incarnation: w.incarnation.id, Seq: w.seq}
}

// byPosition returns the waiters in the order of their positions.
func byPosition(waiting map[uint64]*waiter) []*waiter {
	return slices.SortedFunc(maps.Values(waiting), func(a, b *waiter) int {
		return cmp.Compare(a.position, b.position)
	})
}

func (m *Machine) enqueue(l *lock, w *waiter) {
	m.positions++
	w.lock, w.position = l, m.positions
	w.join()
	m.dirty.put(w.key(), w)
}

// join links the waiter into the queue, its session and its incarnation.
func (w *waiter) join() {
	w.lock.queue.push(&w.inQueue, w)
	w.session.waiters.push(&w.inSession, w)
	w.incarnation.waiting[w.seq] = w
}

func (m *Machine) dequeue(w *waiter) {
	w.lock.queue.remove(&w.inQueue)
	w.session.waiters.remove(&w.inSession)
	delete(w.incarnation.waiting, w.seq)
	m.dirty.drop(w.key())
}

// withdraw takes back a Lock of the calling incarnation: its queue place, or
// the one hold that it was granted. The hold then no longer counts as begun by
// that ticket, so that withdrawing twice takes one hold.
func (m *Machine) withdraw(inc *incarnation, c *wire.Withdraw) *wire.Reply {
	if r := m.checkName(c.Name); r != nil {
		return r
	}
	id, ok := wire.IDFrom(c.Session)
	if !ok {
		return m.refuse(wire.Code_INVALID, "the session's ID is not 16 bytes")
	}
	if w := inc.waiting[c.Seq]; w != nil && w.isOf(c.Name, id, c.Handle) {
		m.dequeue(w)
		m.settle(w, m.reply(wire.Code_WITHDRAWN))
		return m.reply(wire.Code_OK)
	}
	s, l := m.sessions[id], m.locks[c.Name]
	granted := s != nil && l != nil && l.ownedBy(s, c.Handle) &&
		l.ticket == wire.Ticket{Incarnation: inc.id, Seq: c.Seq}
	if !granted {
		return m.reply(wire.Code_NOT_HELD)
	}
	l.ticket = wire.Ticket{}
	return m.giveBack(l)
}

func (w *waiter) isOf(name string, session wire.ID, handle uint64) bool {
	return w.lock.name() == name && w.session.id == session && w.handle == handle
}
