package machine

import (
	"github.com/conclave-go/conclave/internal/wire"
)

// claim transfers an unclaimed hold to the first handle of the attached session
// that asks for the lock. The lock is not free in between, so no waiter is passed
// over; the fence is new, in case that the earlier process still acts.
func (m *Machine) claim(l *lock, w *waiter) *wire.Reply {
	if m.fences+w.block() > maxFences {
		return m.exhausted()
	}
	l.owner.held(l).Remove(l)
	m.voidTicket(l)
	r := m.grant(l, w)
	if l.waiters() > 0 { // they have recalled the former hold
		m.recallOwner(l)
	}
	return r
}

// grantHead grants a free lock to the first in its queue, or drops it.
func (m *Machine) grantHead(l *lock) {
	for w := l.head(); w != nil; w = l.head() {
		if m.dismissDead(w) {
			continue
		}
		m.dequeue(w)
		if m.fences+w.block() <= maxFences {
			m.settle(w, m.caused(m.grant(l, w)))
			return
		}
		m.settle(w, m.exhausted())
	}
	m.space(l.isElection()).remove(l)
	m.dirty.drop(l.key)
}

// grant makes w the owner of a lock that has no other owner, under a new fence.
func (m *Machine) grant(l *lock, w *waiter) *wire.Reply {
	l.owner, l.handle, l.holds, l.lingering, l.since = w.session, w.handle, 1, w.lingering, m.stamp()
	m.setLabel(l, w.label)
	l.fence = m.nextFences(w.block())
	if l.ticket = w.granted(); l.ticket != (ticket{}) {
		l.ticket.by.holds.ReplaceOrInsert(l)
	}
	w.session.held(l).Push(l)
	m.dirty.put(l.key, l)
	if l.isElection() {
		m.elect(l, w.value)
		m.leads(l)
	}
	r := m.holding(l)
	if l.lingering {
		r.Block = firstBlock
	}
	return r
}

// holding is the reply that states the hold as it is.
func (m *Machine) holding(l *lock) *wire.Reply {
	r := m.reply(wire.Code_OK)
	r.Fence, r.Holds = l.fence, l.holds
	return r
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
	p := &permit{semaphore: w.semaphore, owner: w.session, n: w.permits, fence: m.nextFences(1), ticket: w.granted()}
	m.addPermit(p)
	m.dirty.create(p.key(), p)
	r := m.reply(wire.Code_OK)
	r.Fence, r.Holds = p.fence, p.n
	return r
}
