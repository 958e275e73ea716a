package machine

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// permit is one acquisition of permits. It is held by a session, or delayed by
// the lock-delay of one that was invalidated.
type permit struct {
	semaphore  *semaphore
	owner      *session // nil: delayed
	n          uint32
	unclaimed  bool // of an attached session: not acquired by its new process yet
	fence      uint64
	ticket     ticket // of the waiter that the permits were granted to; see granted
	delayUntil int64

	inSession link[permit]
}

// unclaimed returns the oldest unclaimed acquisition of n permits of an attached
// session, or nil.
func (s *semaphore) unclaimed(owner *session, n uint32) *permit {
	if owner.unclaimed == 0 {
		return nil
	}
	for p := owner.permits.first; p != nil; p = p.inSession.next {
		if p.unclaimed && p.semaphore == s && p.n == n {
			return p
		}
	}
	return nil
}

// claimPermits transfers an unclaimed acquisition to w, under a new fence.
func (m *Machine) claimPermits(p *permit, w *waiter) *wire.Reply {
	if m.fences >= maxFences {
		return m.exhausted()
	}
	m.removePermit(p)
	return m.grantPermits(w)
}

func (m *Machine) grantPermits(w *waiter) *wire.Reply {
	p := &permit{semaphore: w.semaphore, owner: w.session, n: w.permits, fence: m.nextFence(), ticket: w.granted()}
	p.add()
	m.dirty.put(p.key(), p)
	r := m.reply(wire.Code_OK)
	r.Fence, r.Holds = p.fence, p.n
	return r
}

// add links the permit into its semaphore, its owner and its incarnation.
func (p *permit) add() {
	p.semaphore.taken += int64(p.n)
	if p.owner == nil {
		p.semaphore.delay(p)
		return
	}
	p.semaphore.held.ReplaceOrInsert(p)
	p.owner.permits.push(p)
	p.owner.unclaimed += p.countUnclaimed()
	if p.ticket != (ticket{}) {
		p.ticket.by.permits[p.ticket.seq] = p
	}
}

// removePermit removes the permit from everything that add links it into.
func (m *Machine) removePermit(p *permit) {
	p.semaphore.taken -= int64(p.n)
	if p.owner == nil {
		p.semaphore.undelay(p)
	} else {
		p.unlink()
	}
	m.dirty.drop(p.key())
}

// unlink undoes add for a permit that is held, but for the count of permits taken.
func (p *permit) unlink() {
	p.semaphore.held.Delete(p)
	p.owner.permits.remove(p)
	p.owner.unclaimed -= p.countUnclaimed()
	p.voidTicket()
}

// voidTicket makes the acquisition independent of its ticket.
func (p *permit) voidTicket() {
	if p.ticket != (ticket{}) {
		delete(p.ticket.by.permits, p.ticket.seq)
		p.ticket = ticket{}
	}
}

func (p *permit) countUnclaimed() int32 {
	if p.unclaimed {
		return 1
	}
	return 0
}

// releasePermits releases an acquisition to the next waiters.
func (m *Machine) releasePermits(p *permit) *wire.Reply {
	r := m.reply(wire.Code_OK)
	r.Fence = p.fence
	m.removePermit(p)
	m.serve(p.semaphore)
	return r
}

// endPermit releases the permits of a session that ends, at once or after the
// delay.
func (m *Machine) endPermit(p *permit, delay int64) {
	if delay == 0 {
		m.removePermit(p)
	} else {
		p.unlink()
		p.owner, p.unclaimed = nil, false
		p.delayUntil = after(m.now, delay)
		p.semaphore.delay(p)
		m.delays.push(p)
		m.dirty.put(p.key(), p)
	}
	m.serve(p.semaphore)
}

func (p *permit) ends() int64     { return p.delayUntil }
func (p *permit) durable() string { return p.key() }

// over ends the lock-delay.
func (p *permit) over(m *Machine) {
	m.removePermit(p)
	m.serve(p.semaphore)
}

// byEnd orders delayed permits.
func byEnd(a, b *permit) int {
	return cmp.Or(cmp.Compare(a.delayUntil, b.delayUntil), cmp.Compare(a.fence, b.fence))
}

// delay puts p, which has no owner, among the permits under a lock-delay.
func (s *semaphore) delay(p *permit) {
	s.delayed += int64(p.n)
	i, _ := slices.BinarySearchFunc(s.back, p, byEnd)
	s.back = slices.Insert(s.back, i, p)
}

func (s *semaphore) undelay(p *permit) {
	s.delayed -= int64(p.n)
	i, _ := slices.BinarySearchFunc(s.back, p, byEnd)
	s.back = slices.Delete(s.back, i, i+1)
}
