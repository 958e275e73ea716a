package machine

import (
	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// claim transfers an unclaimed hold to the first handle of the attached session
// that asks for the lock. The lock is not free in between, so no waiter is passed
// over; the fence is new, in case that the earlier process still acts.
func (m *Machine) claim(l *lock, w *waiter) *wire.Reply {
	if m.fences+w.block() > maxFences {
		return m.exhausted()
	}
	l.owner.list(l).Remove(l)
	m.voidTicket(l)
	bounding{m}.drop(l.bound())
	r := m.grant(l, w)
	if l.waiters()+l.sets().len() > 0 { // they have recalled the former hold
		m.recallOwner(l)
	}
	return r
}

// grantHead grants a lock that has become free to the first in its queue, or drops it.
func (m *Machine) grantHead(l *lock) {
	sharing{m}.serve(l)
	if l.owner == nil || l.set() != nil {
		m.dirty.drop(l.key)
	}
}

// disown takes the lock from its owner.
func (x sharing) disown(l *lock) {
	l.owner.list(l).Remove(l)
	x.voidTicket(l)
	bounding(x).drop(l.bound())
	x.candidates -= l.leader().Bytes()
	l.owner, l.handle, l.holds, l.fence, l.lingering, l.since = nil, 0, 0, 0, false, 0
	x.setLabel(l, "")
	if l.extra != nil {
		l.extra.leader = nil
	}
}

// serve grants to the head of the queue as long as the lock is free for it, and drops a lock
// that is idle. One entry grants a portion of shares; more at least the first of each queue.
func (x sharing) serve(l *lock) { x.serveWith(l, l.sets().candidates(0, 0)) }

// serveBehind serves a lock that something has left which kept it only from the sets behind those positions, exclusive and
// shared ones. The sets before are not ready for that, unless the head of the queue, which may have ended, was before them too;
// or locks are still to be served that others have left, and those sets were not looked at since.
func (x sharing) serveBehind(l *lock, exclusive, shared uint64) {
	if w := l.head(); w != nil {
		exclusive, shared = min(exclusive, w.position), min(shared, w.position)
	}
	if ws := l.sets(); ws != nil && x.unserved != 0 && ws.looked != x.unserved {
		ws.looked, exclusive, shared = x.unserved, 0, 0
	}
	x.serveWith(l, l.sets().candidates(exclusive, shared))
}

// serveWith serves a lock of whose waiting sets only some can be ready.
func (x sharing) serveWith(l *lock, sets candidates) {
	for first := true; l.owner == nil && l.delayUntil == 0; {
		w := l.head()
		if sets != (candidates{}) {
			if setting(x).grantWaiting(l, &sets, w); l.owner != nil {
				return
			}
		}
		switch {
		case w == nil:
			if l.isIdle() {
				l.spaceIn(x.Machine).remove(l)
				if l.isJob() {
					jobRuns(x).left(l)
				}
			}
			return
		case !w.shared && l.phase().held() && (x.left <= 0 || !w.session.dead()):
			return // one of an ended session waits for the next entries to release what that had
		case x.dismissDead(w):
			continue
		case l.isJob() && jobRuns(x).isClosedTo(w):
			if !first && x.grants <= 0 {
				x.sharedBy(l) // which knows the position among the portions
				x.portions.Push(l)
				return
			}
			first = false
			x.grants--
			jobRuns(x).dismiss(w)
			continue
		case l.sets().reservation(w.shared, w.position) != nil:
			return
		case w.shared && !first && x.grants <= 0:
			x.portions.Push(l)
			return
		}
		x.dequeue(w)
		switch {
		case x.fences+w.block() > maxFences:
			x.settle(w.ticket, x.exhausted())
		case w.shared:
			first = false
			x.grants--
			r := x.caused(x.grantShare(l, w))
			x.shareGranted(l, w, r)
			x.settle(w.ticket, r)
		default:
			r := x.caused(x.grant(l, w))
			setting(x).granted(l, w, nil)
			x.settle(w.ticket, r)
		}
	}
}

// servePortions goes on where an earlier entry has stopped, the oldest request first. A lock that has more to grant adds
// itself again, so the entry ends even if one is among them that has nothing to grant.
func (x sharing) servePortions() {
	for x.portions.Len() > 0 && x.grants > 0 {
		x.serve(x.portions.Pop())
	}
}

// byHead orders the locks with waiters for shares that can be granted.
func byHead(a, b *lock) int { return byPosition(a.head(), b.head()) }

func newPortions(v *ordered.Visits) ordered.Heap[*lock] {
	return ordered.NewHeap(v, byHead, func(l *lock) *int { return &l.extra.shared.at })
}

// grant makes w the owner of a lock that has no other owner, under a new fence.
func (m *Machine) grant(l *lock, w *waiter) *wire.Reply {
	l.owner, l.handle, l.holds, l.lingering, l.since = w.session, w.handle, 1, w.lingering, m.stamp()
	m.setLabel(l, w.label)
	l.fence = m.nextFences(w.block())
	if l.ticket = w.granted(); l.ticket != (ticket{}) {
		l.ticket.by.holds.ReplaceOrInsert(l)
	}
	w.session.list(l).Push(l)
	m.dirty.put(l.key, l)
	if l.isElection() {
		m.elect(l, w.value)
		m.leads(l)
	}
	r := m.holding(l)
	if l.lingering {
		r.Block = firstBlock
	}
	bounding{m}.begin(l, w, r)
	if w.terms != nil {
		jobRuns{m}.begin(l, w, r)
	}
	return r
}

// holding is the reply that states the hold as it is.
func (m *Machine) holding(l *lock) *wire.Reply {
	r := m.reply(wire.Code_OK)
	r.Fence, r.Holds = l.fence, l.holds
	return r
}

// claimPermits transfers an unclaimed acquisition to w, under a new fence. It has the same numbers, or none as before.
func (m *Machine) claimPermits(p *permit, w *waiter) *wire.Reply {
	if m.fences >= maxFences {
		return m.exhausted()
	}
	slots := p.slots
	p.slots = nil
	m.removePermit(p)
	return m.grantPermits(w, slots)
}

func (m *Machine) grantPermits(w *waiter, slots []uint32) *wire.Reply {
	p := &permit{semaphore: w.semaphore, owner: w.session, n: w.permits, fence: m.nextFences(1), ticket: w.granted(), slots: slots}
	m.addPermit(p)
	m.dirty.create(p.key(), p)
	r := m.reply(wire.Code_OK)
	r.Fence, r.Holds, r.Slots = p.fence, p.n, p.slots
	bounding{m}.begin(p, w, r)
	return r
}

// reenter adds a hold. It has no ticket of its own: it was never queued.
func (m *Machine) reenter(l *lock, limit uint32) *wire.Reply {
	if l.holds >= MaxHolds || limit != 0 && l.holds >= limit {
		return m.reply(wire.Code_LIMIT_REACHED)
	}
	l.holds++
	m.dirty.put(l.key, l)
	r := m.holding(l)
	l.bound().reply(r, m.now)
	return r
}

// nextFences reserves n fences and returns the first. There must be as many.
func (m *Machine) nextFences(n uint64) (first uint64) {
	first = m.fence() + 1
	m.fences += n
	return first
}

// fence is the largest fence granted so far.
func (m *Machine) fence() uint64 { return uint64(m.epoch)<<48 | m.fences }

// exhausted refuses rather than granting a fence twice.
func (m *Machine) exhausted() *wire.Reply {
	return m.refuse(wire.Code_TOO_LARGE, "all fences of this epoch are used; raise the epoch by recovery")
}
