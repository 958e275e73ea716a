package machine

import (
	"cmp"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// ticket is a wire.Ticket of a registered incarnation. The zero ticket is none.
type ticket struct {
	by  *incarnation
	seq uint64
}

func (t ticket) wire() wire.Ticket { return wire.Ticket{Incarnation: t.by.id, Seq: t.seq} }

// acquisitions is the queue places of one incarnation, and what was granted to
// them, by the sequence numbers of their tickets. A ticket is in one of the trees at
// most. What is granted at once is in none, and costs none.
type acquisitions struct {
	waiters *btree.BTreeG[*waiter]
	holds   *btree.BTreeG[*lock]
	permits *btree.BTreeG[*permit]
}

func (m *Machine) newAcquisitions() acquisitions {
	v, r := &m.visits, &m.registry
	return acquisitions{
		ordered.NewSharingTree(v, func(a, b *waiter) int { return cmp.Compare(a.ticket.seq, b.ticket.seq) }, r.freeWaiters),
		ordered.NewSharingTree(v, func(a, b *lock) int { return cmp.Compare(a.ticket.seq, b.ticket.seq) }, r.freeHolds),
		ordered.NewSharingTree(v, func(a, b *permit) int { return cmp.Compare(a.ticket.seq, b.ticket.seq) }, r.freePermits),
	}
}

// find returns what the sequence number has obtained, but for an ended session, and as
// long as it is not unclaimed, which voids its ticket: at most one is not nil.
func (a *acquisitions) find(seq uint64) (w *waiter, l *lock, p *permit) {
	w, l, p = a.obtained(seq)
	switch {
	case w != nil && w.session.dead(), l != nil && l.owner.dead(), p != nil && p.owner.dead():
		return nil, nil, nil
	case l != nil && l.unclaimed(), p != nil && p.unclaimed():
		return nil, nil, nil
	}
	return w, l, p
}

// obtained returns what the sequence number has obtained: at most one is not nil.
func (a *acquisitions) obtained(seq uint64) (w *waiter, l *lock, p *permit) {
	t := ticket{seq: seq}
	if w, _ = a.waiters.Get(&waiter{ticket: t}); w != nil {
		return w, nil, nil
	}
	if l, _ = a.holds.Get(&lock{ticket: t}); l != nil {
		return nil, l, nil
	}
	p, _ = a.permits.Get(&permit{ticket: t})
	return nil, nil, p
}

// taken reports whether the sequence number has obtained something.
func (a *acquisitions) taken(seq uint64) bool {
	w, l, p := a.obtained(seq)
	return w != nil || l != nil || p != nil
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
	switch w, l, p := inc.find(c.Seq); {
	case w != nil:
		m.dismiss(w, wire.Code_WITHDRAWN)
		return m.reply(wire.Code_OK)
	case l != nil:
		m.voidTicket(l)
		return m.releaseHold(l)
	case p != nil:
		return m.releasePermits(p)
	}
	return m.reply(wire.Code_NOT_HELD)
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
	switch w, l, p := inc.find(t.Seq); {
	case w != nil:
		return Acquired{Waiting: true}
	case l != nil:
		return Acquired{Held: true, Fence: l.fence, Holds: l.holds}
	case p != nil:
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
		return &wire.Reply{Code: wire.Code_OK, Fence: got.Fence, Holds: got.Holds, Trace: m.storedTrace(t)}
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
