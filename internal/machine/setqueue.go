package machine

import (
	"cmp"
	"slices"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// The queues that a set waits in: one place in each lock of it.

// isFree reports whether nothing keeps the lock from the part: no hold or lock-delay, no waiter before it, and no
// reservation for a set before it.
func (p *part) isFree() bool {
	l := p.lock
	switch {
	case l == nil:
		return true
	case l.owner != nil, l.delayUntil != 0, !p.shared && l.phase().held():
		return false
	}
	if w := l.head(); w != nil && (p.set.position == 0 || w.position < p.set.position) {
		return false
	}
	return l.sets().reservation(p.shared, p.set.position) == nil
}

// obstacle returns the first part whose lock is not free for it; nil: the set is ready.
func (x setting) obstacle(s *set) *part {
	for i := range s.parts {
		x.visits.Count()
		if !s.parts[i].isFree() {
			return &s.parts[i]
		}
	}
	return nil
}

// mayJoin refuses a set that would make a queue too long, or of a process that waits in too many places.
func (x setting) mayJoin(s *set) *wire.Reply {
	if r := x.mayShare(s); r != nil {
		return r
	}
	for i := range s.parts {
		if l := s.parts[i].lock; l != nil && l.waitingNames()+len(s.parts) > MaxWaiters {
			return x.refuse(wire.Code_BUSY, "a queue is full (16384 waiters and names of waiting sets)")
		}
	}
	if s.ticket.by.places()+len(s.parts) > MaxQueued {
		return x.refuse(wire.Code_BUSY, waitsTooMuch)
	}
	return nil
}

const waitsTooMuch = "the process waits in too many places (16384); wait for fewer at a time"

// enqueue gives the next position to a set. at is what it waits for first.
func (x setting) enqueue(s *set, at *part) *wire.Reply {
	x.positions++
	s.since = x.stamp()
	for i := range s.parts {
		p := &s.parts[i]
		if p.lock == nil {
			p.lock = &lock{key: p.key}
			x.locks.add(p.lock)
		}
		if p.shared {
			sharing(x).sharedBy(p.lock)
		}
		x.recallBefore(p)
	}
	r := x.reply(wire.Code_QUEUED)
	r.Set = &wire.SetReply{Shared: uint32(s.shared)}
	for i := range s.parts {
		if &s.parts[i] == at {
			r.Set.Taken = []*wire.Taken{x.taken(at, i)}
			r.Holder = r.Set.Taken[0].Holder
		}
	}
	s.position = x.positions
	x.join(s)
	for i := range s.parts {
		l := s.parts[i].lock
		r.Position = max(r.Position, uint32(l.waiters()+l.sets().len()))
	}
	x.dirty.create(s.key(), s)
	return r
}

// recallBefore recalls what lingers and is the last in line, behind which the part is about to queue.
func (x setting) recallBefore(p *part) {
	x.recall(&waiter{lock: p.lock, session: p.set.session, handle: p.set.handle, shared: p.shared})
}

// join links a set that waits into the queues, its session and its incarnation.
func (x setting) join(s *set) {
	for i := range s.parts {
		p := &s.parts[i]
		more := p.lock.more()
		if more.sets == nil {
			more.sets = new(waitingSets)
		}
		more.sets.list(p.shared).Push(p)
		x.insert(&more.sets.positions[p.mode()], p)
		more.sets.names += len(s.parts)
	}
	s.session.waitingSets.Push(s)
	s.session.inWaitingSets += len(s.parts)
	s.ticket.by.waitingSets.ReplaceOrInsert(s)
	s.ticket.by.inSets += len(s.parts)
	x.waiting++
	x.sets.waiting++
	x.sets.bytes += s.bytes()
	if s.reserves() {
		x.reserve(s)
	}
}

// insert adds a part to a tree by position.
func (x setting) insert(tree **btree.BTreeG[*part], p *part) {
	if *tree == nil {
		*tree = ordered.NewSharingTree(&x.visits, func(a, b *part) int { return cmp.Compare(a.set.position, b.set.position) }, x.sets.free)
	}
	(*tree).ReplaceOrInsert(p)
}

// leave undoes join.
func (x setting) leave(s *set) {
	if s.reserves() {
		x.unmark(s)
	}
	for i := range s.parts {
		p := &s.parts[i]
		ws := p.lock.extra.sets
		ws.list(p.shared).Remove(p)
		ws.positions[p.mode()].Delete(p)
		ws.names -= len(s.parts)
		if ws.len() == 0 {
			p.lock.extra.sets = nil
		}
	}
	s.session.waitingSets.Remove(s)
	s.session.inWaitingSets -= len(s.parts)
	s.ticket.by.waitingSets.Delete(s)
	s.ticket.by.inSets -= len(s.parts)
	x.forget(s.ticket.by)
	x.waiting--
	x.sets.waiting--
	x.sets.bytes -= s.bytes()
	x.dirty.drop(s.key())
	if s.passed > 0 {
		x.dirty.drop(passing{s}.key())
	}
}

// grantWaiting grants the sets that wait for the lock, come before w, and are ready; nil: any. A grant makes no other set
// ready, so each candidate is looked at once.
func (x setting) grantWaiting(l *lock, c *candidates, w *waiter) {
	before := uint64(0)
	if w != nil {
		before = w.position
	}
	for {
		if l.phase().held() { // until this serving of the lock ends
			c.exclusive = nil
		}
		p := c.next(before)
		if p == nil {
			return
		}
		x.visits.Count()
		s := p.set
		if l.sets().reservation(p.shared, s.position) != nil { // and against all behind it
			c.drop(p)
			continue
		}
		if s.session.dead() || x.obstacle(s) != nil || !x.hasFences(s) {
			continue
		}
		x.leave(s)
		r := x.caused(x.grant(s))
		x.settle(s.ticket, r)
		x.passAll(s)
		if l.owner != nil {
			return
		}
	}
}

// hasFences reports whether a set can be granted. If not, it waits on until the epoch is raised, which ends its session.
func (x setting) hasFences(s *set) bool { return x.fences+s.fences() <= maxFences }

// passAll notes that a set was granted.
func (x setting) passAll(s *set) {
	var due []*set
	for i := range s.parts {
		due = x.passOver(due, s.parts[i].lock, s.position, s.parts[i].shared, s.fence)
	}
	x.reserveAll(due)
}

// granted notes that a lock was granted to w, or the share of it; sh is nil if it is held exclusively.
func (x setting) granted(l *lock, w *waiter, sh *share) {
	ws := l.sets()
	switch {
	case ws == nil:
		return
	case sh == nil:
		x.reserveAll(x.passOver(nil, l, w.position, false, l.fence))
		x.recallOwner(l)
	default:
		x.reserveAll(x.passOver(nil, l, w.position, true, sh.number))
		if sh.lingering && ws.exclusive.Len > 0 {
			sharing(x).recallShare(sh)
		}
	}
}

// passOver counts a grant of the lock for the sets that were queued before its request, which had that position and mode;
// 0: it was not queued. A grant of several locks counts once. It adds those to due that were passed over as often as they
// may be, for reserveAll.
func (x setting) passOver(due []*set, l *lock, position uint64, shared bool, fence uint64) []*set {
	ws := l.sets()
	if ws == nil {
		return due
	}
	for mode := range 2 {
		if mode == 1 && shared {
			break
		}
		for p := ws.list(mode == 1).First(); p != nil && p.set.isBefore(position); p = p.inLock.Next() {
			x.visits.Count()
			s := p.set
			switch {
			case s.passedBy == fence || s.session.dead() || s.reserves():
				continue
			case s.passed+1 >= MaxPassed:
				due = append(due, s)
			default:
				s.passed++
				x.dirty.put(passing{s}.key(), passing{s})
			}
			s.passedBy = fence
		}
	}
	return due
}

// reserveAll reserves their names for sets that were passed over once more, but for those that refuse deadlocks and with which that
// would close a cycle of sessions that wait for each other: these are passed over on, until it does not.
func (x setting) reserveAll(due []*set) {
	slices.SortFunc(due, func(a, b *set) int { return cmp.Compare(a.position, b.position) })
	for _, s := range due {
		s.passed++
		x.mark(s)
		if !(deadlocks(x)).mayReserve(s) {
			x.unmark(s)
			s.passed--
			continue
		}
		x.dirty.put(passing{s}.key(), passing{s})
		x.reserved(s)
	}
}

// reserve reserves its names for a set that waits.
func (x setting) reserve(s *set) {
	x.mark(s)
	x.reserved(s)
}

func (x setting) mark(s *set) {
	s.session.reserving++
	for i := range s.parts {
		p := &s.parts[i]
		x.insert(&p.lock.extra.sets.reserved[p.mode()], p)
	}
}

func (x setting) unmark(s *set) {
	s.session.reserving--
	for i := range s.parts {
		p := &s.parts[i]
		p.lock.extra.sets.reserved[p.mode()].Delete(p)
	}
}

// reserved leaves out of the portions that are due what waits behind the set now.
func (x setting) reserved(s *set) {
	for i := range s.parts {
		p := &s.parts[i]
		if ph := p.lock.phase(); ph != nil && ph.at != 0 && !p.lock.isDue() {
			x.portions.Remove(p.lock)
		}
	}
}

// dismiss removes a set that waits, with code as its last outcome. It has kept only what came behind it from the locks.
func (x setting) dismiss(s *set, code wire.Code) {
	due := x.dismissed(s, code)
	last := lastGain(due, s.position)
	for i, p := range due {
		shared := s.position
		if p.shared && i >= last {
			shared = x.positions // it kept no other share from them
		}
		sharing(x).serveBehind(p.lock, s.position, shared)
	}
}

// lastGain returns the last of the parts, all of which a set has left, that kept a share of its lock, or the wish for one, from
// an exclusive set behind the position; 0: none. Such a set may want shares of the locks before, and have to be granted before
// what is queued there. One that an exclusive part kept waiting was looked at by then, as those are served first.
func lastGain(parts []part, position uint64) int {
	for i := len(parts) - 1; i > 0 && parts[i].shared; i-- {
		l := parts[i].lock
		ws := l.sets()
		if ws == nil || l.owner != nil || l.delayUntil != 0 || l.phase().held() {
			continue
		}
		if first := ws.firstBehind(position, 0); first != nil && ws.reservation(false, first.set.position) == nil {
			return i
		}
	}
	return 0
}

// dismissed removes a set that waits, and returns its parts whose locks are to be served then: those that were reserved, and
// those that only this set has waited for.
func (x setting) dismissed(s *set, code wire.Code) (due []part) {
	reserved := s.reserves()
	x.leave(s)
	x.settle(s.ticket, x.reply(code))
	for i := range s.parts {
		if p := &s.parts[i]; reserved || p.lock.isIdle() {
			due = append(due, *p)
		}
	}
	return due
}
