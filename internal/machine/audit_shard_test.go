package machine

// shardSets checks the sets of shards with their workers.
func (a *auditor) shardSets() {
	sharded, workers, all := make(map[*session]int), 0, 0
	for name, set := range a.m.shardSets.byName {
		if set.name != name || int(set.count) != len(set.shards) || set.next == set.count || set.generation == 0 {
			a.fail("set %q is kept under %q: %d shards, %d to be, %d are there", set.name, name, set.count, set.next, len(set.shards))
		}
		a.shardsOf(set, sharded)
		workers += len(set.workers)
		all += set.size()
		if a.m.shardSets.due.Contains(set) != set.isDue(a.m.fences < maxFences) {
			a.fail("set %q is to be planned: %t", name, !set.isDue(a.m.fences < maxFences))
		}
	}
	auditIndex(a, a.m.shardSets.byName, a.m.shardSets.index)
	if all != a.m.shardSets.all || all > MaxAllShards+ReservedShards {
		a.fail("%d shards, and %d are counted", all, a.m.shardSets.all)
	}
	if workers != a.m.shardSets.workers {
		a.fail("%d workers, and %d are counted", workers, a.m.shardSets.workers)
	}
	for _, s := range a.m.sessions {
		last := uint64(0)
		for w := s.workers.First(); w != nil; w = w.inSession.Next() {
			if workers--; w.session != s || w.joined <= last {
				a.fail("session %s: a worker is not where it belongs", s.id)
			}
			last = w.joined
		}
		if !s.dead() && s.sharded != sharded[s] {
			a.fail("session %s has %d shards, and %d are counted", s.id, sharded[s], s.sharded)
		}
	}
	for _, set := range a.m.shardSets.byName {
		for _, w := range set.workers {
			if w.session == nil {
				workers--
			}
		}
	}
	if workers != 0 {
		a.fail("%d workers are of no session", workers)
	}
}

// shardsOf checks what the workers of a set have.
func (a *auditor) shardsOf(set *shardSet, sharded map[*session]int) {
	has, moving, delayed := make(map[*worker]int), make(map[*worker]int), 0
	for i := range set.shards {
		sh := &set.shards[i]
		switch {
		case sh.owner == nil:
			if delayed += min(1, int(sh.delay)); sh.moving || sh.fence != 0 {
				a.fail("set %q: shard %d is free and has %+v", set.name, i, *sh)
			}
			continue
		case sh.delay != 0 || sh.moving && (!sh.isClaimed() && sh.owner.session == nil):
			a.fail("set %q: shard %d has an owner and %+v", set.name, i, *sh)
		}
		a.fence(sh.fence)
		if has[sh.owner]++; sh.moving {
			moving[sh.owner]++
		}
		if sh.isClaimed() {
			sharded[sh.owner.session]++
		}
	}
	a.delayed += delayed
	busy := delayed > 0
	for i, w := range set.workers {
		busy = busy || w.shards > 0
		switch {
		case w.set != set || i > 0 && set.workers[i-1].number >= w.number || w.number > set.joins:
			a.fail("set %q: worker %d is not where it belongs", set.name, w.number)
		case w.shards != has[w] || w.moving != moving[w]:
			a.fail("set %q: worker %d counts %d shards and %d to move, and has %d and %d", set.name, w.number, w.shards, w.moving, has[w], moving[w])
		case w.isIdle():
			a.fail("set %q: worker %d has no reason to be there", set.name, w.number)
		case (w.ends() != 0) != (w.at != 0) || w.expired && (w.session != nil || w.delay != 0):
			a.fail("set %q: worker %d waits until %d, and is listed: %t", set.name, w.number, w.ends(), w.at != 0)
		}
		delete(has, w)
	}
	if delayed != set.delayed || len(has) > 0 || len(set.workers) == 0 && delayed == 0 || set.next != 0 && !busy {
		a.fail("set %q has %d delayed shards, counts %d, and %d unknown workers", set.name, delayed, set.delayed, len(has))
	}
}

// eachOfShardSets calls put with the sets of shards, their workers and what is assigned to those.
func eachOfShardSets(m *Machine, put func(key string, r record)) {
	for _, set := range m.shardSets.byName {
		put(set.key(), set)
		for _, w := range set.workers {
			put(w.key(), w)
		}
		for i := range set.shards {
			if sh := &set.shards[i]; sh.owner != nil || sh.delay != 0 {
				put(shardKey(set.name, uint32(i)), sh)
			}
		}
	}
}
