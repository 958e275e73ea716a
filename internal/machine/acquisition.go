package machine

import (
	"cmp"
	"strings"

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
	shares  *btree.BTreeG[*share]
	permits *btree.BTreeG[*permit]
	sets    *btree.BTreeG[*set] // that are held

	waitingSets *btree.BTreeG[*set]
	inSets      int // names of those
}

// places is how many places in queues the incarnation has.
func (a *acquisitions) places() int { return a.waiters.Len() + a.inSets }

func (m *Machine) newAcquisitions() acquisitions {
	v, r := &m.visits, &m.registry
	return acquisitions{
		waiters: ordered.NewSharingTree(v, func(a, b *waiter) int { return cmp.Compare(a.ticket.seq, b.ticket.seq) }, r.freeWaiters),
		holds:   ordered.NewSharingTree(v, func(a, b *lock) int { return cmp.Compare(a.ticket.seq, b.ticket.seq) }, r.freeHolds),
		shares:  ordered.NewSharingTree(v, func(a, b *share) int { return cmp.Compare(a.ticket.seq, b.ticket.seq) }, r.freeShares),
		permits: ordered.NewSharingTree(v, func(a, b *permit) int { return cmp.Compare(a.ticket.seq, b.ticket.seq) }, r.freePermits),
		sets:    ordered.NewSharingTree(v, func(a, b *set) int { return cmp.Compare(a.ticket.seq, b.ticket.seq) }, r.freeSets),

		waitingSets: ordered.NewSharingTree(v, func(a, b *set) int { return cmp.Compare(a.ticket.seq, b.ticket.seq) }, r.freeSets),
	}
}

// obtained is what a ticket has obtained: at most one is not nil.
type obtained struct {
	waiter *waiter
	hold   *lock
	share  *share
	permit *permit
	set    *set
}

// find returns what the sequence number has obtained, but for an ended session, and as
// long as it is not unclaimed, which voids its ticket.
func (a *acquisitions) find(seq uint64) obtained {
	var s *session
	o, unclaimed := a.obtained(seq), false
	switch {
	case o.waiter != nil:
		s = o.waiter.session
	case o.hold != nil:
		s, unclaimed = o.hold.owner, o.hold.unclaimed()
	case o.share != nil:
		s, unclaimed = o.share.owner, o.share.unclaimed()
	case o.permit != nil:
		s, unclaimed = o.permit.owner, o.permit.unclaimed()
	case o.set != nil:
		s, unclaimed = o.set.session, !o.set.waits() && o.set.unclaimed()
	}
	if s == nil || s.dead() || unclaimed {
		return obtained{}
	}
	return o
}

// obtained returns what the sequence number has obtained.
func (a *acquisitions) obtained(seq uint64) (o obtained) {
	t := ticket{seq: seq}
	if o.waiter, _ = a.waiters.Get(&waiter{ticket: t}); o.waiter != nil {
		return o
	}
	if o.hold, _ = a.holds.Get(&lock{ticket: t}); o.hold != nil {
		return o
	}
	if o.share, _ = a.shares.Get(&share{ticket: t}); o.share != nil {
		return o
	}
	if o.permit, _ = a.permits.Get(&permit{ticket: t}); o.permit != nil {
		return o
	}
	if o.set, _ = a.waitingSets.Get(&set{ticket: t}); o.set == nil {
		o.set, _ = a.sets.Get(&set{ticket: t})
	}
	return o
}

// taken reports whether the sequence number has obtained something.
func (a *acquisitions) taken(seq uint64) bool { return a.obtained(seq) != obtained{} }

// withdraw undoes what a request of the submitter that was queued has obtained: its
// place, its permits, or the first hold of a lock or a share. Re-entries remain.
func (m *Machine) withdraw(inc *incarnation, c *wire.Withdraw) *wire.Reply {
	id, ok := wire.IDFrom(c.Incarnation)
	switch {
	case !ok:
		return m.refuse(wire.Code_INVALID, "the ticket's incarnation is not 16 bytes")
	case id != inc.id: // sent again after a new registration: the ticket ended with the old one
		return m.reply(wire.Code_NOT_HELD)
	}
	switch o := inc.find(c.Seq); {
	case o.waiter != nil:
		m.dismiss(o.waiter, wire.Code_WITHDRAWN)
		return m.reply(wire.Code_OK)
	case o.hold != nil:
		if o.hold.isJob() {
			jobRuns{m}.finish(o.hold, wire.RunResult_NOT_STARTED, "")
		}
		m.voidTicket(o.hold)
		return m.releaseHold(o.hold)
	case o.share != nil:
		sharing{m}.voidShareTicket(o.share)
		return sharing{m}.releaseShare(o.share)
	case o.permit != nil:
		return m.releasePermits(o.permit)
	case o.set != nil && o.set.waits():
		setting{m}.dismiss(o.set, wire.Code_WITHDRAWN)
		return m.reply(wire.Code_OK)
	case o.set != nil:
		return setting{m}.releaseNow(o.set)
	}
	return m.reply(wire.Code_NOT_HELD)
}

// Acquired is what a request that was queued has obtained. Neither Waiting nor Held:
// nothing, or it has been released.
type Acquired struct {
	Waiting, Held bool
	Fence         uint64   // if Held
	Holds         uint32   // if Held: of a lock, the holds of its owner; of a semaphore, the permits
	Share         uint64   // if Held: number of a share; 0: it is none
	Slots         []uint32 // the permits' numbers, if they have some; never changed
	Set           []uint64 // of a set: the fences of its shared names, if it has some
	Allowed, Now  int64    // if Held and the hold ends in time: as in wire.Reply
}

// ending returns what an acquisition says of the end of its hold.
func (a Acquired) ending(b *bound) Acquired {
	if b != nil {
		a.Allowed, a.Now = max(0, b.ends-b.requested), b.requested
	}
	return a
}

// Acquisition returns what the ticket of a queued Lock or Acquire has obtained.
func (m *Machine) Acquisition(t wire.Ticket) Acquired {
	inc := m.incarnation(t.Incarnation)
	if inc == nil {
		return Acquired{}
	}
	switch o := inc.find(t.Seq); {
	case o.waiter != nil:
		return Acquired{Waiting: true}
	case o.hold != nil:
		return Acquired{Held: true, Fence: o.hold.fence, Holds: o.hold.holds}.ending(o.hold.bound())
	case o.share != nil:
		return Acquired{Held: true, Fence: o.share.lock.phase().fence, Holds: o.share.holds, Share: o.share.number}.ending(o.share.end)
	case o.permit != nil:
		return Acquired{Held: true, Fence: o.permit.fence, Holds: o.permit.n, Slots: o.permit.slots}.ending(o.permit.end)
	case o.set != nil && o.set.waits():
		return Acquired{Waiting: true}
	case o.set != nil:
		return Acquired{Held: true, Fence: o.set.fence, Holds: 1, Set: o.set.phases()}.ending(o.set.end)
	}
	return Acquired{}
}

// Recheck returns the second outcome of a ticket that was QUEUED, for a member
// that missed outcomes because it installed a snapshot; nil while the ticket
// waits. The session, and the semaphore if it waited for one, are those of the
// command: the machine keeps nothing of a waiter that it has dismissed.
func (m *Machine) Recheck(t wire.Ticket, session wire.ID, semaphore, job string) *wire.Reply {
	got := m.Acquisition(t)
	switch limit := m.refusedBy(t, session, semaphore); {
	case got.Waiting:
		return nil
	case got.Held:
		r := &wire.Reply{
			Code: wire.Code_OK, Fence: got.Fence, Holds: got.Holds, Share: got.Share, Slots: got.Slots, Trace: m.storedTrace(t),
			Allowed: got.Allowed, Now: got.Now,
		}
		if len(got.Set) > 0 {
			r.Set = &wire.SetReply{Fences: got.Set}
		}
		if job != "" {
			r.Run = jobRuns{m}.missed(job).Run
			r.Run.Result = wire.RunResult_RUNNING
		}
		return r
	case limit != 0:
		return &wire.Reply{Code: wire.Code_LIMIT_MISMATCH, Limit: limit}
	case job != "" && !strings.HasSuffix(job, "\x00") && m.sessions[session].isBoundTo(t): // periods are never done
		return jobRuns{m}.missed(job)
	}
	return &wire.Reply{Code: wire.Code_SESSION_EXPIRED}
}

// refusedBy returns the semaphore's limit if Resize has dismissed the waiter of a
// ticket that has obtained nothing and was not withdrawn: only that dismisses a
// waiter of a session that is still bound to the ticket's incarnation. Else 0.
func (m *Machine) refusedBy(t wire.Ticket, session wire.ID, semaphore string) (limit uint32) {
	sem := m.semaphores.byName[semaphore]
	if sem == nil || !m.sessions[session].isBoundTo(t) {
		return 0
	}
	return sem.limit
}
