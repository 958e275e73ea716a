package machine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/machine/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// linkLocks gives sessions their holds in the order of the fences, as they were
// granted.
func (ld *loader) linkLocks() error {
	slices.SortFunc(ld.locks, func(a, b pending[lock, *wire.LockState]) int {
		return cmp.Or(cmp.Compare(a.of.fence, b.of.fence), cmp.Compare(a.of.key, b.of.key))
	})
	last := uint64(0)
	for _, p := range ld.locks {
		err := ld.linkLock(p.of, p.state, last)
		if err != nil {
			return fmt.Errorf("lock %q: %w", p.of.name(), err)
		}
		last = p.of.fence
	}
	return nil
}

// linkLock links a lock; last is the fence of the one before it.
func (ld *loader) linkLock(l *lock, st *wire.LockState, last uint64) (err error) {
	m := ld.m
	id, held := wire.IDFrom(st.Session)
	if l.ticket, err = ld.ticket(st.Incarnation, st.Seq); err != nil {
		return err
	}
	switch {
	case held == (l.delayUntil != 0), held != (l.holds > 0), !held && (l.fence != 0 || l.handle != 0 || l.ticket != ticket{}):
		return errNeither
	case !m.soundLabel(st.Label, st.Since, held), len(st.Value) > 0 && !(held && l.isElection()), l.lingering && (!held || l.isElection() || l.isJob() || m.levels.agreed < wire.LevelLinger):
		return errRange
	case !held && (st.Ends != 0 || st.Requested != 0), l.isJob() && (held && l.holds != 1 || st.Label != ""):
		return errRange
	case !held:
		m.delays.Push(l)
		return nil
	case l.fence <= last || l.fence > m.fence():
		return errFence
	case m.sessions[id] == nil:
		return errLoose
	}
	l.owner = m.sessions[id]
	l.owner.list(l).Push(l)
	if err := ld.linkBound(l, st.Ends, st.Requested, !l.isElection() && !l.isJob() && !l.lingering); err != nil {
		return err
	}
	if l.ticket != (ticket{}) {
		l.ticket.by.holds.ReplaceOrInsert(l)
	}
	if l.isElection() {
		m.elect(l, st.Value)
	}
	return nil
}

// linkBound gives a hold its end in time; possible says whether it can have one.
func (ld *loader) linkBound(of endable, ends, requested int64, possible bool) error {
	switch x := (bounding{ld.m}); {
	case ends == 0 && requested == 0:
	case !possible || !x.hasMaxHold(), requested < 0 || requested > x.now, ends <= requested || ends > after(x.now, MaxMaxHold):
		return errRange
	default:
		b := new(bound)
		if s, ok := of.(*set); ok {
			b = &s.hold // its shares know it
		}
		b.of, b.ends, b.requested = of, ends, requested
		x.add(b)
	}
	return nil
}

// soundMaxHold reports whether a stored time after which a hold is to end is possible.
func (ld *loader) soundMaxHold(d int64) bool {
	return bounding{ld.m}.hasMaxHold() && d >= MinMaxHold && d <= MaxMaxHold
}

// lockOf finds a lock or election by its durable key.
func (ld *loader) lockOf(key string) *lock {
	if key == "" {
		return nil
	}
	switch key[0] {
	case lockKind:
		return ld.m.locks.byName[key[1:]]
	case electionKind:
		return ld.m.elections.byName[key[1:]]
	case jobLockKind:
		return ld.m.jobs.locks.byName[key[1:]]
	}
	return nil
}

// linkSlots gives semaphores what is remembered of their numbers.
func (ld *loader) linkSlots() error {
	slices.SortFunc(ld.slots, func(a, b *slots.Former) int { return cmp.Compare(a.Position, b.Position) })
	for _, f := range ld.slots {
		s := ld.m.semaphores.byName[f.Semaphore]
		if s == nil {
			return fmt.Errorf("number %d of %q: %w", f.Number, f.Semaphore, errLoose)
		}
		f.Semaphore = s.name() // the same memory
		if ld.m.levels.agreed < wire.LevelSlots || !s.numbers.Load(ld.m.semaphores.numbers, f) {
			return fmt.Errorf("number %d of %q: %w", f.Number, f.Semaphore, errRange)
		}
	}
	return nil
}

// linkPermits gives semaphores and sessions their permits in the order of the
// fences.
func (ld *loader) linkPermits() error {
	slices.SortFunc(ld.permits, func(a, b pending[permit, *wire.PermitState]) int {
		return cmp.Or(cmp.Compare(a.of.fence, b.of.fence), cmp.Compare(a.at, b.at))
	})
	last := uint64(0)
	locks := ld.locks // by fence
	for _, x := range ld.permits {
		for len(locks) > 0 && locks[0].of.fence < x.of.fence {
			locks = locks[1:]
		}
		err := ld.linkPermit(x, last)
		if err == nil && len(locks) > 0 && locks[0].of.fence == x.of.fence {
			err = errFence
		}
		if err != nil {
			return fmt.Errorf("permit of %q: %w", x.at, err)
		}
		last = x.of.fence
	}
	return nil
}

// linkPermit links a permit; last is the fence of the one before it.
func (ld *loader) linkPermit(x pending[permit, *wire.PermitState], last uint64) (err error) {
	p := x.of
	p.semaphore = ld.m.semaphores.byName[x.at]
	id, held := wire.IDFrom(x.state.Session)
	if held {
		p.owner = ld.m.sessions[id]
	}
	if p.ticket, err = ld.ticket(x.state.Incarnation, x.state.Seq); err != nil {
		return err
	}
	switch {
	case p.semaphore == nil, held && p.owner == nil:
		return errLoose
	case held != (p.delayUntil == 0), p.n == 0:
		return errNeither
	case !held && p.ticket != ticket{}:
		return errRange
	case p.fence <= last || p.fence > ld.m.fence():
		return errFence
	case len(p.slots) > 0 && ld.m.levels.agreed < wire.LevelSlots:
		return errRange
	case !p.semaphore.numbers.LoadTaken(ld.m.semaphores.numbers, p.slots, !held):
		return errTwice
	}
	ld.m.addPermit(p)
	if !held {
		ld.m.delays.Push(p)
	}
	return ld.linkBound(p, x.state.Ends, x.state.Requested, held)
}

// isLoose reports that the ticket of a queue place names no registered incarnation, which
// only that of an ended session may do.
func (ld *loader) isLoose(t ticket, of *session) bool {
	return t.by != nil && t.by.gone && !of.dead()
}

// linkWaiters fills the queues in the order of the positions.
func (ld *loader) linkWaiters() error {
	slices.SortFunc(ld.waiters, func(a, b pending[waiter, *wire.WaiterState]) int {
		return cmp.Compare(a.of.position, b.of.position)
	})
	last := uint64(0)
	for _, p := range ld.waiters {
		if err := ld.linkWaiter(p, last); err != nil {
			return fmt.Errorf("waiter for %q: %w", p.at, err)
		}
		last = p.of.position
	}
	return nil
}

// linkWaiter links a waiter; last is the position of the one before it.
func (ld *loader) linkWaiter(p pending[waiter, *wire.WaiterState], last uint64) (err error) {
	m, w := ld.m, p.of
	id, _ := wire.IDFrom(p.state.Session)
	w.session = m.sessions[id]
	switch w.lock = ld.lockOf(p.at); {
	case w.lock != nil:
	case p.at[0] == semaphoreKind:
		w.semaphore = m.semaphores.byName[p.at[1:]]
	case p.at[0] == lockKind && len(p.at) > 1, p.at[0] == jobLockKind: // see linkQueues and checkJobs
		w.lock = ld.freeLock(p.at)
	}
	if w.ticket, err = ld.ticket(p.state.Incarnation, p.state.Seq); err != nil {
		return err
	}
	switch s := w.semaphore; {
	case w.lock == nil && s == nil, w.session == nil, w.ticket == ticket{}, ld.isLoose(w.ticket, w.session):
		return errLoose
	case s != nil && (w.permits == 0 || w.permits > s.limit), w.position > m.positions, !m.soundLabel(w.label, w.since, s == nil || w.label == "" && w.maxHold > 0),
		w.maxHold != 0 && (s == nil && w.lock.isElection() || w.lingering || !ld.soundMaxHold(w.maxHold)),
		w.lingering && (s != nil || w.lock.isElection() || m.levels.agreed < wire.LevelLinger),
		w.shared && (s != nil || w.lock.isElection() || m.levels.agreed < wire.LevelShared):
		return errRange
	case w.position <= last:
		return errTwice
	}
	if err := ld.linkTerms(w, p.state); err != nil {
		return err
	}
	m.candidates += len(w.value)
	m.labels += len(w.label)
	if w.shared {
		sharing{m}.sharedBy(w.lock)
	}
	w.join()
	m.waiting++
	return nil
}

// checkSemaphores checks that each has a reason to exist and a head that has to
// wait.
func (ld *loader) checkSemaphores() error {
	for name, s := range ld.m.semaphores.byName { // order: shows in an error only
		head := s.queue.First()
		switch {
		case !s.resized && s.idle():
			return fmt.Errorf("semaphore %q: it is idle", name)
		case head != nil && int64(head.permits) <= s.free():
			return fmt.Errorf("semaphore %q: %w", name, errRange)
		}
	}
	return nil
}
