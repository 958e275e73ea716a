package machine

import "slices"

// phase checks what a lock has of shared holds.
func (a *auditor) phase(l *lock) {
	p := l.phase()
	waiting := l.countShared()
	if p == nil {
		if waiting > 0 {
			a.fail("lock %q: shared requests wait, and it knows of none", l.name())
		}
		return
	}
	live, delayed, until, lingering, last := 0, 0, int64(0), 0, uint64(0)
	for _, sh := range a.m.sharesOf(l) {
		a.numbers[sh.number]++
		switch {
		case sh.lock != l || sh.number <= last || sh.number > a.m.fence():
			a.fail("lock %q: share %d is not one of it", l.name(), sh.number)
		case sh.owner == nil:
			delayed++
			a.delayed++
			until = max(until, sh.delayUntil)
			if sh.delayUntil == 0 || sh.holds != 0 || sh.ticket != (ticket{}) || sh.label != "" {
				a.fail("lock %q: share %d is delayed and held", l.name(), sh.number)
			}
		default:
			live++
			if sh.set() == nil {
				a.shares++
			}
			if sh.lingering {
				lingering++
			}
			if sh.delayUntil != 0 || sh.holds == 0 || a.m.sessions[sh.owner.id] != sh.owner || p.fence > sh.number && sh.set() == nil {
				a.fail("lock %q: share %d has an owner that cannot own it", l.name(), sh.number)
			}
			if t := sh.ticket; t != (ticket{}) {
				if t.by.obtained(t.seq).share != sh || !a.names(t, true) {
					a.fail("lock %q: share %d is not found by its ticket", l.name(), sh.number)
				}
				a.tickets++
			}
		}
		last = sh.number
	}
	switch {
	case l.isElection(), (live+delayed > 0) && (l.owner != nil || l.delayUntil != 0):
		a.fail("lock %q is held shared, and otherwise too", l.name())
	case p.live.Len() != live || p.delayed != delayed || p.delayUntil != until || p.lingering.Len != lingering || p.waiting != waiting:
		a.fail("lock %q counts shares wrongly: %+v", l.name(), *p)
	case live > 0:
		a.phases[p.fence]++
	}
	if (p.at != 0) != l.awaitsPortion() || l.extra.shortened {
		a.fail("lock %q is due: %t, and listed as such: %t", l.name(), l.isDue(), p.at != 0)
	}
	a.counted += live + delayed
}

// countShared counts the waiters for shares.
func (l *lock) countShared() (n int) {
	for w := l.head(); w != nil; w = w.inQueue.Next() {
		if w.shared {
			n++
		}
	}
	return n
}

// portions checks what is counted of all locks' shares. The number of the first share of a phase is its fence as well.
func (a *auditor) portions() {
	due := 0
	for _, space := range []space{a.m.locks, a.m.jobs.locks} {
		for _, l := range space.byName {
			if l.awaitsPortion() {
				due++
			}
		}
	}
	if due != a.m.portions.Len() || a.counted != a.m.shares {
		a.fail("%d locks are due and %d listed; %d shares, and %d are counted", due, a.m.portions.Len(), a.counted, a.m.shares)
	}
	for number, n := range a.numbers {
		if n > 1 || a.fences[number] {
			a.fail("the number %d is that of two grants", number)
		}
	}
	for fence := range a.phases {
		if a.fences[fence] && a.m.sets.byFence[fence] == nil || fence > a.m.fence() {
			a.fail("the fence %d is that of a phase and of another grant", fence)
		}
	}
}

// sharesOf returns the shares of a lock, live or delayed, by number.
func (m *Machine) sharesOf(l *lock) (all []*share) {
	p := l.phase()
	if p == nil {
		return nil
	}
	p.live.Ascend(func(sh *share) bool {
		all = append(all, sh)
		return true
	})
	for _, x := range m.delays.All() {
		if sh, ok := x.(*share); ok && sh.lock == l {
			all = append(all, sh)
		}
	}
	slices.SortFunc(all, byNumber)
	return all
}
