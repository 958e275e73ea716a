package machine

import (
	"cmp"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// permit is one acquisition of permits. It is held by a session, or delayed by
// the lock-delay of one that was invalidated.
type permit struct {
	semaphore  *semaphore
	owner      *session // nil: delayed
	n          uint32
	fence      uint64
	ticket     ticket // of the waiter that the permits were granted to; see granted
	delayUntil int64
	slots      []uint32 // the numbers; ascending, never changed. nil: none
	end        *bound   // nil: the hold does not end in time

	inSession ordered.Link[permit]
}

// byClaim orders the permits of a session by what an Acquire must ask for in order to
// claim them; then by fence.
func byClaim(a, b *permit) int {
	return cmp.Or(cmp.Compare(a.semaphore.key, b.semaphore.key), cmp.Compare(a.n, b.n), cmp.Compare(a.fence, b.fence))
}

// unclaimed reports that the permits are held by an attached session, whose new process
// has not acquired them yet.
func (p *permit) unclaimed() bool { return p.owner != nil && p.owner.claimable(p.fence) }

// unclaimed returns the oldest unclaimed acquisition of n permits of an attached
// session, or nil.
func (s *semaphore) unclaimed(owner *session, n uint32) (oldest *permit) {
	if owner.attached == 0 || owner.claims == nil {
		return nil
	}
	owner.claims.AscendGreaterOrEqual(&permit{semaphore: s, n: n}, func(p *permit) bool {
		if p.semaphore == s && p.n == n && p.unclaimed() {
			oldest = p
		}
		return false
	})
	return oldest
}

// addPermit links the permit into its semaphore, its owner and its incarnation.
func (m *Machine) addPermit(p *permit) {
	p.semaphore.taken += int64(p.n)
	if p.owner == nil {
		p.semaphore.delay(p)
		return
	}
	p.semaphore.held.ReplaceOrInsert(p)
	p.owner.permits.Push(p)
	if p.owner.ttl == 0 { // it can be attached
		if p.owner.claims == nil {
			p.owner.claims = ordered.NewSharingTree(&m.visits, byClaim, m.semaphores.freeHeld)
		}
		p.owner.claims.ReplaceOrInsert(p)
	}
	if p.ticket != (ticket{}) {
		p.ticket.by.permits.ReplaceOrInsert(p)
	}
}

// removePermit removes the permit from everything that addPermit links it into.
func (m *Machine) removePermit(p *permit) {
	p.semaphore.taken -= int64(p.n)
	if p.owner == nil {
		p.semaphore.undelay(p)
	} else {
		m.unlink(p)
	}
	m.semaphores.freeNumbers(p)
	m.dirty.drop(p.key())
}

// unlink undoes addPermit for a permit that is held, but for the count of permits taken.
func (m *Machine) unlink(p *permit) {
	p.semaphore.held.Delete(p)
	p.owner.permits.Remove(p)
	bounding{m}.drop(p.end)
	if p.owner.claims != nil {
		p.owner.claims.Delete(p)
	}
	if by := p.ticket.by; by != nil {
		by.permits.Delete(p)
		p.ticket = ticket{}
		m.forget(by)
	}
}

// releasePermits releases an acquisition to the next waiters.
func (m *Machine) releasePermits(p *permit) *wire.Reply {
	r := m.reply(wire.Code_OK)
	r.Fence = p.fence
	m.removePermit(p)
	m.serve(p.semaphore)
	return r
}

// endPermit releases the permits of a session that has ended, at once or when its
// lock-delay ends.
func (m *Machine) endPermit(p *permit, until int64) {
	if until <= m.now {
		m.removePermit(p)
	} else {
		m.unlink(p)
		p.semaphore.numbers.Remember(m.semaphores.numbers, p.semaphore.name(), p.owner.name, p.slots)
		p.owner = nil
		p.delayUntil = until
		p.semaphore.delay(p)
		m.beginDelay(p)
		m.dirty.put(p.key(), p)
	}
	m.serve(p.semaphore)
}

func (p *permit) ends() int64  { return p.delayUntil }
func (p *permit) place() place { return place{permitKind, p.semaphore.name(), p.fence} }

// over ends the lock-delay.
func (p *permit) over(m *Machine) {
	m.removePermit(p)
	m.serve(p.semaphore)
}

// delay puts p, which has no owner, among the permits under a lock-delay.
func (s *semaphore) delay(p *permit) {
	s.delayed += int64(p.n)
	s.back.add(p)
}

func (s *semaphore) undelay(p *permit) {
	s.delayed -= int64(p.n)
	s.back.remove(p)
}
