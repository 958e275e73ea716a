package machine

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// ticket is a wire.Ticket of a registered incarnation. The zero ticket is none.
type ticket struct {
	by  *incarnation
	seq uint64
}

func (t ticket) wire() wire.Ticket { return wire.Ticket{Incarnation: t.by.id, Seq: t.seq} }

// acquisitions is the queue places of one incarnation, and what was granted to
// them, by the sequence numbers of their tickets. A ticket is in one of the maps at
// most. What is granted at once is in none, and costs none.
type acquisitions struct {
	waiters map[uint64]*waiter
	holds   map[uint64]*lock
	permits map[uint64]*permit
}

func newAcquisitions() acquisitions {
	return acquisitions{make(map[uint64]*waiter), make(map[uint64]*lock), make(map[uint64]*permit)}
}

// taken reports whether the sequence number has obtained something.
func (a *acquisitions) taken(seq uint64) bool {
	return a.waiters[seq] != nil || a.holds[seq] != nil || a.permits[seq] != nil
}

// withdraw undoes what a request of the submitter that was queued has obtained: its
// place, its permits, or the first hold of a lock. Re-entries remain.
func (m *Machine) withdraw(inc *incarnation, c *wire.Withdraw) *wire.Reply {
	id, ok := wire.IDFrom(c.Incarnation)
	switch {
	case !ok:
		return m.refuse(wire.Code_INVALID, "the ticket's incarnation is not 16 bytes")
	case id != inc.id: // sent again after a new registration: the ticket ended with the old one
		return m.reply(wire.Code_NOT_HELD)
	}
	if w := inc.waiters[c.Seq]; w != nil {
		m.dismiss(w, wire.Code_WITHDRAWN)
		return m.reply(wire.Code_OK)
	}
	if l := inc.holds[c.Seq]; l != nil {
		l.voidTicket()
		return m.releaseHold(l)
	}
	if p := inc.permits[c.Seq]; p != nil {
		return m.releasePermits(p)
	}
	return m.reply(wire.Code_NOT_HELD)
}

// endTickets voids the tickets of an incarnation that ends, for what outlives it:
// another incarnation may be registered under the same ID.
func (m *Machine) endTickets(inc *incarnation) {
	for _, seq := range slices.Sorted(maps.Keys(inc.holds)) {
		l := inc.holds[seq]
		l.voidTicket()
		m.dirty.put(l.key, l)
	}
	for _, seq := range slices.Sorted(maps.Keys(inc.permits)) {
		p := inc.permits[seq]
		p.voidTicket()
		m.dirty.put(p.key(), p)
	}
}

// Acquired is what a request that was queued has obtained. Neither Waiting nor Held:
// nothing, or it has been released.
type Acquired struct {
	Waiting, Held bool
	Fence         uint64 // if Held
	Holds         uint32 // if Held: of a lock, the holds of its owner; of a semaphore, the permits
}

// Acquisition returns what the ticket of a queued Lock or Acquire has obtained.
func (m *Machine) Acquisition(t wire.Ticket) Acquired {
	inc := m.incarnation(t.Incarnation)
	if inc == nil {
		return Acquired{}
	}
	if inc.waiters[t.Seq] != nil {
		return Acquired{Waiting: true}
	}
	if l := inc.holds[t.Seq]; l != nil {
		return Acquired{Held: true, Fence: l.fence, Holds: l.holds}
	}
	if p := inc.permits[t.Seq]; p != nil {
		return Acquired{Held: true, Fence: p.fence, Holds: p.n}
	}
	return Acquired{}
}

// Recheck returns the second outcome of a ticket that was QUEUED, for a member
// that missed outcomes because it installed a snapshot; nil while the ticket
// waits. The session, and the semaphore if it waited for one, are those of the
// command: the machine keeps nothing of a waiter that it has dismissed.
func (m *Machine) Recheck(t wire.Ticket, session wire.ID, semaphore string) *wire.Reply {
	got := m.Acquisition(t)
	switch limit := m.refusedBy(t, session, semaphore); {
	case got.Waiting:
		return nil
	case got.Held:
		return &wire.Reply{Code: wire.Code_OK, Fence: got.Fence, Holds: got.Holds}
	case limit != 0:
		return &wire.Reply{Code: wire.Code_LIMIT_MISMATCH, Limit: limit}
	}
	return &wire.Reply{Code: wire.Code_SESSION_EXPIRED}
}

// refusedBy returns the semaphore's limit if Resize has dismissed the waiter of a
// ticket that has obtained nothing and was not withdrawn: only that dismisses a
// waiter of a session that is still bound to the ticket's incarnation. Else 0.
func (m *Machine) refusedBy(t wire.Ticket, session wire.ID, semaphore string) (limit uint32) {
	s, sem := m.sessions[session], m.semaphores.byName[semaphore]
	if s == nil || sem == nil || s.incarnation == nil || s.incarnation.id != t.Incarnation {
		return 0
	}
	return sem.limit
}
