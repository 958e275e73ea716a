package machine

// sets checks the sets that are held, and those that wait.
func (a *auditor) sets() {
	held, waiting, bytes := 0, 0, 0
	for _, s := range a.m.sessions {
		names, last := 0, uint64(0)
		for of := s.sets.First(); of != nil; of = of.inSession.Next() {
			if of.session != s || of.waits() || of.fence <= last {
				a.fail("session %s: set %d is not one that it holds", s.id, of.fence)
			}
			a.heldSet(of)
			names, bytes, last = names+len(of.parts), bytes+of.bytes(), of.fence
			held++
		}
		if names != s.inSets {
			a.fail("session %s counts %d names of sets, and has %d", s.id, s.inSets, names)
		}
		reserving := 0
		names, last = 0, 0
		for of := s.waitingSets.First(); of != nil; of = of.inSession.Next() {
			if of.session != s || !of.waits() || of.position <= last {
				a.fail("session %s: set in position %d is not one that it awaits", s.id, of.position)
			}
			a.waitingSet(of)
			if of.reserves() {
				reserving++
			}
			names, bytes, last = names+len(of.parts), bytes+of.bytes(), of.position
			waiting++
		}
		if names != s.inWaitingSets || reserving != s.reserving {
			a.fail("session %s counts %d names of sets that wait and %d reservations, and has %d and %d", s.id, s.inWaitingSets, s.reserving, names, reserving)
		}
	}
	if held != len(a.m.sets.byFence) || waiting != a.m.sets.waiting || bytes != a.m.sets.bytes {
		a.fail("%d sets are held and %d wait with %d bytes, and %d, %d and %d are counted", held, waiting, bytes, len(a.m.sets.byFence), a.m.sets.waiting, a.m.sets.bytes)
	}
	for _, l := range a.m.locks.byName {
		a.queueOfSets(l)
	}
}

// sharesOfSets counts the shares that a session has by sets.
func sharesOfSets(s *session) (n int) {
	for of := s.sets.First(); of != nil; of = of.inSession.Next() {
		n += of.shared
	}
	return n
}

// heldSet checks that the set has each of its locks.
func (a *auditor) heldSet(s *set) {
	a.fence(s.fence)
	if a.m.sets.byFence[s.fence] != s || s.passed > MaxPassed || (s.end != nil && s.end != &s.hold) {
		a.fail("set %d is not found by its fence", s.fence)
	}
	if t := s.ticket; t != (ticket{}) {
		if t.by.obtained(t.seq).set != s || !a.names(t, true) {
			a.fail("set %d is not found by its ticket", s.fence)
		}
		a.tickets++
	}
	for i := range s.parts {
		p := &s.parts[i]
		l := a.m.locks.byName[p.key[1:]]
		switch n := i - (len(s.parts) - s.shared); {
		case p.set != s || l == nil || p.lock != l || p.shared != (n >= 0):
			a.fail("set %d: part %q is not one of it", s.fence, p.key)
		case !p.shared && (l.set() != s || l.owner != s.session || l.fence != s.fence || l.handle != s.handle || l.holds != 1 || l.since != s.since):
			a.fail("set %d does not have the lock %q", s.fence, p.key)
		case p.shared && (p.share.number != s.firstNumber()+uint64(n) || p.share.set() != s || p.share.lock != l || p.share.owner != s.session):
			a.fail("set %d does not have a share of the lock %q", s.fence, p.key)
		case p.shared:
			if found, _ := l.phase().live.Get(p.share); found != p.share {
				a.fail("set %d: the lock %q does not have its share", s.fence, p.key)
			}
		}
	}
}

// waitingSet checks that the set is in each of its queues, and that it has to wait.
func (a *auditor) waitingSet(s *set) {
	if t := s.ticket; t == (ticket{}) || t.by.obtained(t.seq).set != s || !a.names(t, s.session.dead()) {
		a.fail("set in position %d is not found by its ticket", s.position)
	}
	if s.position > a.m.positions || s.passed > MaxPassed {
		a.fail("set in position %d was passed over %d times", s.position, s.passed)
	}
	if (setting{a.m}).obstacle(s) == nil && !s.session.dead() {
		a.fail("set in position %d waits for what is free", s.position)
	}
	for i := range s.parts {
		p := &s.parts[i]
		if p.set != s || p.lock == nil || a.m.locks.byName[p.key[1:]] != p.lock {
			a.fail("set in position %d: part %q is not one of it", s.position, p.key)
			continue
		}
		found := false
		for q := p.lock.sets().list(p.shared).First(); q != nil; q = q.inLock.Next() {
			found = found || q == p
		}
		tree := p.lock.sets().reserved[p.mode()]
		if !found || !p.lock.sets().positions[p.mode()].Has(p) || (tree != nil && tree.Has(p)) != s.reserves() {
			a.fail("set in position %d: the lock %q does not know it, its position, or its reservation", s.position, p.key)
		}
	}
	a.waitingSets++
}

// queueOfSets checks what a lock has of the sets that wait for it, and that its head has to wait.
func (a *auditor) queueOfSets(l *lock) {
	names, n, reserved := 0, 0, 0
	if ws := l.sets(); ws != nil {
		for _, shared := range []bool{false, true} {
			last := uint64(0)
			for p := ws.list(shared).First(); p != nil; p = p.inLock.Next() {
				if p.shared != shared || p.set.position <= last || p.lock != l {
					a.fail("lock %q: its queue of sets is broken at %d", l.name(), p.set.position)
				}
				names, n, last = names+len(p.set.parts), n+1, p.set.position
			}
			if tree := ws.reserved[(&part{shared: shared}).mode()]; tree != nil {
				reserved += tree.Len()
			}
		}
		if n == 0 || names != ws.names || reserved > n {
			a.fail("lock %q: %d sets wait with %d names, and %d are counted, %d with a reservation", l.name(), n, names, ws.names, reserved)
		}
	}
	head := l.head()
	switch {
	case head == nil || l.owner != nil || l.delayUntil != 0:
	case head.shared && !l.isDue() && l.sets().reservation(true, head.position) == nil,
		!head.shared && !l.phase().held() && l.sets().reservation(false, head.position) == nil:
		a.fail("lock %q: the head waits for what is free", l.name())
	}
}
