package machine

import (
	"cmp"
	"slices"

	"github.com/google/btree"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/machine/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// semaphore exists while permits are acquired, awaited or delayed, and forever
// once Resize has set its limit.
type semaphore struct {
	key     string // durable; the name follows its first byte
	limit   uint32
	resized bool
	slot    ordered.Slot

	shortened bool                   // see shortened
	taken     int64                  // permits, held or delayed
	delayed   int64                  // permits under a lock-delay
	held      *btree.BTreeG[*permit] // by fence
	back      reserve                // delayed
	queue     ordered.List[waiter, waitersInQueue]
	bySize    *btree.BTreeG[*waiter] // the queue, the largest request first
	numbers   slots.Numbers
}

// semaphores holds the semaphores.
type semaphores struct {
	byName map[string]*semaphore
	index  ordered.Index[semaphore]
	visits *ordered.Visits

	// Shared by the trees of all of them.
	freeHeld  *btree.FreeListG[*permit]
	freeSizes *btree.FreeListG[*waiter]
	numbers   *slots.Space
}

func newSemaphores(v *ordered.Visits, d *dirty) semaphores {
	return semaphores{
		byName:    make(map[string]*semaphore),
		index:     ordered.NewIndex(v, (*semaphore).name, func(s *semaphore) *ordered.Slot { return &s.slot }),
		visits:    v,
		freeHeld:  btree.NewFreeListG[*permit](btree.DefaultFreeListSize),
		freeSizes: btree.NewFreeListG[*waiter](btree.DefaultFreeListSize),
		numbers:   slots.NewSpace(v, d),
	}
}

func (x *semaphores) add(name string, limit uint32) *semaphore {
	s := &semaphore{key: semaphoreKey(name), limit: limit}
	s.held = ordered.NewSharingTree(x.visits, func(a, b *permit) int { return cmp.Compare(a.fence, b.fence) }, x.freeHeld)
	s.bySize = ordered.NewSharingTree(x.visits, bySize, x.freeSizes)
	s.back.visits = x.visits
	x.byName[s.name()] = s
	x.index.Add(s)
	return s
}

func (x *semaphores) remove(s *semaphore) {
	delete(x.byName, s.name())
	x.index.Remove(s)
	s.numbers.Forget(x.numbers)
}

// takeNumbers numbers permits that are about to be granted to w: nil at a feature level without numbers, and if there
// are too many. As many numbers below the limit are free: at most limit less w.permits are taken, each by a permit of its
// own, also after a Resize to fewer, when some of those may be limit or larger.
func (x *semaphores) takeNumbers(w *waiter, level uint32) []uint32 {
	if level < wire.LevelSlots || w.permits > MaxSlots {
		return nil
	}
	return w.semaphore.numbers.Take(x.numbers, w.session.name, int(w.permits), w.semaphore.limit)
}

// freeNumbers frees the numbers of permits that are not taken any more.
func (x *semaphores) freeNumbers(p *permit) {
	s := p.semaphore
	s.numbers.Free(x.numbers, p.slots)
	if p.owner != nil && (s.resized || !s.idle()) { // else it ends with them
		s.numbers.Remember(x.numbers, s.name(), p.owner.name, p.slots)
	}
}

func (s *semaphore) name() string { return s.key[1:] }

func (s *semaphore) free() int64 { return int64(s.limit) - s.taken }

// idle reports that nothing but a Resize is a reason to keep the semaphore.
func (s *semaphore) idle() bool { return s.queue.Len == 0 && s.taken == 0 }

// holder describes the oldest holder; nil if there is none, or if it has ended.
func (s *semaphore) holder() *wire.Holder {
	p, ok := s.held.Min()
	if !ok || p.owner.dead() {
		return nil
	}
	return &wire.Holder{Session: p.owner.id[:], Member: p.owner.member, Fence: p.fence}
}

func (m *Machine) acquire(inc *incarnation, seq uint64, c *wire.Acquire) *wire.Reply {
	if r := cmp.Or(m.checkName(c.Name), m.checkLimit(c.Limit), bounding{m}.check(c.MaxHold, true)); r != nil {
		return r
	}
	if c.Permits == 0 {
		return m.refuse(wire.Code_INVALID, "invalid number of permits: want at least 1, got 0")
	}
	owner, refusal := m.live(c.Session)
	if owner == nil {
		return refusal
	}
	s := m.semaphores.byName[c.Name]
	w := &waiter{semaphore: s, session: owner, permits: c.Permits, ticket: ticket{inc, seq}, maxHold: bounding{m}.maxHold(c.MaxHold)}
	if s != nil && s.limit != c.Limit {
		return m.mismatch(s.limit)
	}
	tooMany := c.Permits > c.Limit
	if s != nil && (!tooMany || m.levels.agreed >= wire.LevelClaim) { // a claim takes nothing that was free, so no limit is in its way
		if p := s.unclaimed(owner, c.Permits); p != nil {
			return m.claimPermits(p, w)
		}
	}
	if tooMany {
		return m.refuse(wire.Code_TOO_LARGE, "more permits requested than the semaphore's limit")
	}
	if r := m.mayHaveMore(owner); r != nil {
		return r
	}
	switch {
	case s == nil || s.queue.Len == 0 && s.free() >= int64(c.Permits):
		return m.newPermit(w, c)
	case !c.Wait:
		return m.refusePermits(s, c.Permits)
	}
	if r := m.mayJoin(w); r != nil {
		return r
	}
	return m.enqueue(w)
}

// permitOf returns the acquisition that a handle of the session has under the fence, or nil.
func (x *semaphores) permitOf(owner *session, name string, fence uint64) *permit {
	s := x.byName[name]
	if s == nil {
		return nil
	}
	if p, _ := s.held.Get(&permit{fence: fence}); p != nil && p.owner == owner && !p.unclaimed() {
		return p
	}
	return nil
}

// newPermit grants permits that are free.
func (m *Machine) newPermit(w *waiter, c *wire.Acquire) *wire.Reply {
	if m.fences >= maxFences {
		return m.exhausted()
	}
	if w.semaphore == nil {
		w.semaphore = m.semaphores.add(c.Name, c.Limit)
		m.dirty.put(w.semaphore.key, w.semaphore)
	}
	return m.grantPermits(w, m.semaphores.takeNumbers(w, m.levels.agreed))
}

// refusePermits refuses a caller that does not wait: other owners are in its way,
// or only lock-delays.
func (m *Machine) refusePermits(s *semaphore, n uint32) *wire.Reply {
	free := s.free()
	if s.queue.Len > 0 || free+s.delayed < int64(n) {
		return m.locked(s.holder())
	}
	r := m.reply(wire.Code_LOCK_DELAY)
	r.Delay = max(0, s.back.enough(int64(n)-free).delayUntil-m.now)
	return r
}

func (m *Machine) releasePermit(c *wire.Release) *wire.Reply {
	if r := m.checkName(c.Name); r != nil {
		return r
	}
	owner, refusal := m.live(c.Session)
	if owner == nil {
		return refusal
	}
	p := m.semaphores.permitOf(owner, c.Name, c.Fence)
	if p == nil {
		return m.reply(wire.Code_NOT_HELD)
	}
	m.cause = m.traceOf(c.Trace)
	r := m.releasePermits(p)
	m.cause = nil
	return r
}

// serve grants to the head of the queue as long as enough permits are free, and
// drops a semaphore that is idle.
func (m *Machine) serve(s *semaphore) {
	for w := s.queue.First(); w != nil && (w.session.dead() || int64(w.permits) <= s.free()); w = s.queue.First() {
		if m.dismissDead(w) {
			continue
		}
		m.dequeue(w)
		if m.fences < maxFences {
			m.settle(w.ticket, m.caused(m.grantPermits(w, m.semaphores.takeNumbers(w, m.levels.agreed))))
		} else {
			m.settle(w.ticket, m.exhausted())
		}
	}
	if s.idle() && !s.resized && m.semaphores.byName[s.name()] == s {
		m.semaphores.remove(s)
		m.dirty.drop(s.key)
	}
}

// resize sets the limit that every caller must expect. It dismisses the waiters
// for more permits than that: they would wait forever.
func (m *Machine) resize(c *wire.Resize) *wire.Reply {
	if c.Limit == 0 {
		return m.unresize(c.Name)
	}
	if r := cmp.Or(m.checkName(c.Name), m.checkLimit(c.Limit)); r != nil {
		return r
	}
	s := m.semaphores.byName[c.Name]
	if (s == nil || !s.resized) && m.resized >= m.limit(MaxResized, ReservedResized) {
		return m.refuse(wire.Code_TOO_LARGE, "too many semaphores have been resized; use fewer names")
	}
	if s == nil {
		s = m.semaphores.add(c.Name, c.Limit)
	}
	if !s.resized {
		s.resized = true
		m.resized++
	}
	s.limit = c.Limit
	m.dirty.put(s.key, s)
	for _, w := range s.larger(c.Limit) {
		if m.dismissDead(w) {
			continue
		}
		m.dequeue(w)
		m.settle(w.ticket, m.mismatch(c.Limit))
	}
	m.serve(s)
	return m.reply(wire.Code_OK)
}

// unresize makes the limit last only as long as the semaphore is in use, like one that
// was never resized: its next user states the limit.
func (m *Machine) unresize(name string) *wire.Reply {
	if r := m.checkName(name); r != nil {
		return r
	}
	if s := m.semaphores.byName[name]; s != nil && s.resized {
		s.resized = false
		m.resized--
		m.dirty.put(s.key, s)
		m.serve(s) // which drops an idle one
	}
	return m.reply(wire.Code_OK)
}

// bySize orders waiters by the permits they ask for, the most first.
func bySize(a, b *waiter) int {
	return cmp.Or(cmp.Compare(b.permits, a.permits), cmp.Compare(a.position, b.position))
}

// larger returns the waiters for more permits than limit, by position.
func (s *semaphore) larger(limit uint32) (larger []*waiter) {
	s.bySize.Ascend(func(w *waiter) bool {
		if w.permits <= limit {
			return false
		}
		larger = append(larger, w)
		return true
	})
	slices.SortFunc(larger, byPosition)
	return larger
}

func (m *Machine) mismatch(limit uint32) *wire.Reply {
	r := m.reply(wire.Code_LIMIT_MISMATCH)
	r.Limit = limit
	return r
}

func (m *Machine) checkLimit(limit uint32) *wire.Reply {
	if limit == 0 || limit > MaxPermits {
		return m.refuse(wire.Code_INVALID, "the limit is out of range: want 1 to 2^31-1")
	}
	return nil
}
