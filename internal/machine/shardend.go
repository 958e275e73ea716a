package machine

// endedFor emits, for each set that an ended session works for, that its owners have changed.
func (x sharding) endedFor(s *session) {
	for w := range s.workers.All(&x.visits) {
		x.changedAll(w.set)
	}
}

// vanish has the shards of a worker whose session has ended wait for one of the same name.
func (x sharding) vanish(w *worker) {
	s := w.session
	x.stay(w)
	if w.ends() != 0 {
		x.shardSets.times.Remove(w)
	}
	s.workers.Remove(w)
	w.session = nil
	if until := s.delayUntil(); until > x.now {
		w.delay = max(w.delay, until)
	}
	w.until = w.delay
	if !w.leaving {
		w.until = max(w.until, after(s.endedAt, w.settle))
	}
	if w.until > x.now {
		x.shardSets.times.Push(w)
	} else {
		x.expire(w)
	}
	x.dirty.put(w.key(), w)
	x.changedAll(w.set)
	x.touch(w.set)
}

// expire has the shards of a worker go to others.
func (x sharding) expire(w *worker) { w.expired, w.until, w.delay = true, 0, 0 }

// endWaits ends the lock-delays of workers, and the waits of their shards, that have passed, as far as the entry may.
func (x sharding) endWaits() {
	times := &x.shardSets.times
	for w := times.First(); w != nil && w.ends() <= x.now && x.left > 0; w = times.First() {
		x.left--
		times.Pop()
		if w.session != nil {
			w.delay = 0
		} else {
			x.expire(w)
			x.changedAll(w.set)
		}
		x.dirty.put(w.key(), w)
		x.touch(w.set)
	}
}

// unbound has no more shards assigned to the workers of a session whose process has ended, and which lives on.
func (x sharding) unbound(s *session) {
	for w := range s.workers.All(&x.visits) {
		x.stay(w)
		x.changedAll(w.set)
		x.touch(w.set)
	}
}

// attached has the workers of the session's former process wait for those of the next one, but for those that were leaving: none can release what
// they have.
func (x sharding) attached(s *session) {
	forsaken := make(map[*shardSet]bool)
	for w := range s.workers.All(&x.visits) {
		if w.leaving && !forsaken[w.set] { // one of many, perhaps
			forsaken[w.set] = true
			x.forsake(w.set)
		}
		x.changedAll(w.set)
		x.touch(w.set)
	}
}
