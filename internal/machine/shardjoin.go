package machine

import (
	"cmp"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// sharding is a machine as far as shards are assigned to workers.
type sharding struct{ *Machine }

// hasShards reports whether the group is at the level of shards.
func (x sharding) hasShards() bool { return x.levels.agreed >= wire.LevelShards }

// join makes a handle a worker of a set.
func (x sharding) join(c *wire.JoinShards) *wire.Reply {
	if r := x.checkJoin(c); r != nil {
		return r
	}
	s, refusal := x.live(c.Session)
	if s == nil {
		return refusal
	}
	set := x.shardSets.byName[c.Set]
	x.endDead(set)
	changes := set != nil && set.wanted() != c.Count
	switch {
	case changes && (set.next != 0 || set.hasLive()):
		return x.counts(wire.Code_LIMIT_MISMATCH, set)
	case set.find(s, c.Handle) != nil:
		return x.counts(wire.Code_OK, set)
	}
	former := x.former(set, s)
	if changes {
		former = nil // all that are there leave
	}
	if former == nil {
		if r := x.mayAdd(set, c); r != nil {
			return r
		}
	}
	if x.fences >= maxFences {
		return x.exhausted()
	}
	if changes {
		x.change(set, c.Count)
	}
	if set == nil {
		set = &shardSet{name: c.Set, count: c.Count, generation: x.index, shards: make([]shard, c.Count)}
		x.shardSets.add(set)
		x.changedAll(set)
	}
	x.employ(set, former, s, c)
	return x.counts(wire.Code_OK, set)
}

// endDead has workers whose sessions have ended wait for others of their names, before those join.
func (x sharding) endDead(set *shardSet) {
	if set == nil {
		return
	}
	for _, w := range set.workers {
		if w.session != nil && w.session.dead() {
			x.vanish(w)
		}
	}
}

// checkJoin returns nil or the refusal of what a worker asks for.
func (x sharding) checkJoin(c *wire.JoinShards) *wire.Reply {
	if r := cmp.Or(x.checkName(c.Set), x.checkCount(c.Count)); r != nil {
		return r
	}
	switch {
	case c.Capacity < 1 || c.Capacity > MaxCapacity:
		return x.refuse(wire.Code_INVALID, "the capacity is out of range: want 1 to 1024")
	case c.Settle < 0 || c.Settle > MaxSettle:
		return x.refuse(wire.Code_INVALID, "the time to settle is out of range: want 0 to 24 h")
	}
	return nil
}

// checkCount returns nil or the refusal of a number of shards.
func (x sharding) checkCount(count uint32) *wire.Reply {
	if count < 1 || count > MaxShards {
		return x.refuse(wire.Code_INVALID, "the number of shards is out of range: want 1 to 4096")
	}
	return nil
}

// counts is a reply with the count that workers are to join with.
func (x sharding) counts(code wire.Code, set *shardSet) *wire.Reply {
	r := x.reply(code)
	r.Limit = set.wanted()
	return r
}

// former returns the worker whose place one of the session takes, or nil: the first that an earlier process of the session has left, as that
// session keeps its shards from others; or one of the same name that has ended.
func (x sharding) former(set *shardSet, s *session) *worker {
	if set == nil {
		return nil
	}
	var left, ended *worker
	for _, w := range set.workers { // not those of the session, which may work for many sets
		switch {
		case w.leaving:
		case w.session == s && w.isLeft():
			if left == nil || w.joined < left.joined {
				left = w
			}
		case ended == nil && !w.isLive() && w.name == s.name && (w.name != "" || w.member == s.member):
			ended = w
		}
	}
	return cmp.Or(left, ended)
}

// mayAdd returns nil or the refusal of another worker, in a set that exists, or in a new one.
func (x sharding) mayAdd(set *shardSet, c *wire.JoinShards) *wire.Reply {
	switch {
	case set != nil && len(set.workers) >= MaxShardWorkers:
		return x.refuse(wire.Code_BUSY, "the set of shards has too many workers")
	case x.shardSets.workers >= x.limit(MaxAllShardWorkers, ReservedShardWorkers):
		return x.refuse(wire.Code_BUSY, "the sets of shards of the group have too many workers")
	case set == nil && len(x.shardSets.byName) >= x.limit(MaxShardSets, ReservedShardSets):
		return x.refuse(wire.Code_BUSY, "too many sets of shards in the group")
	}
	return x.mayCount(set, c.Count)
}

// mayCount returns nil or the refusal of a number of shards for which there is no room.
func (x sharding) mayCount(set *shardSet, count uint32) *wire.Reply {
	more := int(count)
	if set != nil {
		more -= set.size()
	}
	if more > 0 && x.shardSets.all+more > x.limit(MaxAllShards, ReservedShards) {
		return x.refuse(wire.Code_BUSY, "too many shards in the group")
	}
	return nil
}

// employ makes the handle a worker, a new one or in the place of a former one, whose shards are granted to it again.
func (x sharding) employ(set *shardSet, w *worker, s *session, c *wire.JoinShards) {
	if w == nil {
		set.joins++
		x.shardSets.workers++
		w = &worker{set: set, number: set.joins}
		set.workers = append(set.workers, w)
		x.dirty.put(set.key(), set)
	} else {
		x.stay(w)
		x.part(w)
		if w.ends() != 0 { // else it is not in the heap
			x.shardSets.times.Remove(w)
		}
		if w.expired = false; w.delay <= x.now {
			w.delay = 0
		}
		x.changedAll(set)
	}
	w.session, w.handle, w.name, w.member, w.client = s, c.Handle, s.name, s.member, s.client
	w.capacity, w.settle, w.until = c.Capacity, c.Settle, 0
	w.joined = x.nextFences(1)
	if w.delay != 0 {
		x.shardSets.times.Push(w)
	}
	s.workers.Push(w)
	x.dirty.put(w.key(), w)
	x.touch(set)
}

// part takes a worker from its session, whose claimed shards it does not have any more.
func (x sharding) part(w *worker) {
	if w.session == nil {
		return
	}
	if w.isLive() {
		for i := range w.set.shards {
			if sh := &w.set.shards[i]; sh.owner == w && sh.isClaimed() {
				w.session.sharded--
			}
		}
	}
	w.session.workers.Remove(w)
}

// stay ends that shards of the worker are to move.
func (x sharding) stay(w *worker) {
	for i := range w.set.shards {
		if w.moving == 0 {
			return
		}
		if sh := &w.set.shards[i]; sh.owner == w && sh.moving {
			sh.moving = false
			w.moving--
			x.record(w.set, uint32(i))
		}
	}
}

// leave ends that shards are assigned to a worker. Those that it works on it releases.
func (x sharding) leave(c *wire.LeaveShards) *wire.Reply {
	w, refusal := x.workerOf(c.Set, c.Session, c.Handle)
	if w == nil {
		return refusal
	}
	if !w.leaving {
		x.dismiss(w)
		x.forsake(w.set)
		x.changedAll(w.set)
		x.touch(w.set)
	}
	return x.reply(wire.Code_OK)
}

// workerOf returns the worker that a command is about, or the refusal of the command.
func (x sharding) workerOf(set string, session []byte, handle uint64) (*worker, *wire.Reply) {
	if r := x.checkName(set); r != nil {
		return nil, r
	}
	s, refusal := x.live(session)
	if s == nil {
		return nil, refusal
	}
	w := x.shardSets.byName[set].find(s, handle)
	if w == nil {
		return nil, x.reply(wire.Code_NOT_HELD)
	}
	return w, nil
}

// dismiss has a worker leave; forsake is to follow. An ended one waits for none of its name.
func (x sharding) dismiss(w *worker) {
	w.leaving = true
	x.dirty.put(w.key(), w)
	if w.session == nil && !w.expired {
		x.shardSets.times.Remove(w)
		if w.until = w.delay; w.until > x.now {
			x.shardSets.times.Push(w)
		} else {
			x.expire(w)
		}
	}
}

// forsake takes from the workers that leave what they were not granted yet, and what none can release.
func (x sharding) forsake(set *shardSet) {
	for i := range set.shards {
		sh := &set.shards[i]
		w := sh.owner
		if w == nil || !w.leaving || !w.isLive() || sh.isClaimed() && !w.isLeft() {
			continue
		}
		until := w.delay
		if w.isLeft() { // its process may still work
			until = max(until, after(x.now, w.session.lockDelay))
		}
		x.vacate(set, uint32(i), until)
	}
}

// vacate takes a shard from its owner; until is the end of a lock-delay.
func (x sharding) vacate(set *shardSet, number uint32, until int64) {
	sh := &set.shards[number]
	w := sh.owner
	if sh.isClaimed() {
		w.session.sharded--
	}
	if w.shards--; sh.moving {
		w.moving--
	}
	if *sh = (shard{}); until > x.now {
		sh.delay = until
		set.delayed++
		x.beginDelay(restingShard{set, number, until})
	}
	x.record(set, number)
}

// record makes a shard durable.
func (x sharding) record(set *shardSet, number uint32) {
	if sh := &set.shards[number]; sh.owner != nil || sh.delay != 0 {
		x.dirty.put(shardKey(set.name, number), sh)
	} else {
		x.dirty.drop(shardKey(set.name, number))
	}
}

// release releases shards that a worker has ended to work on.
func (x sharding) release(c *wire.ReleaseShards) *wire.Reply {
	switch {
	case len(c.Shards) != len(c.Fences):
		return cmp.Or(x.checkName(c.Set), x.refuse(wire.Code_INVALID, "each shard needs its fence"))
	case len(c.Shards) > MaxReleasedShards:
		return cmp.Or(x.checkName(c.Set), x.refuse(wire.Code_TOO_LARGE, "too many shards at once: at most 1024"))
	}
	w, refusal := x.workerOf(c.Set, c.Session, c.Handle)
	if w == nil {
		return refusal
	}
	until := int64(0)
	if c.Lost {
		until = after(x.now, w.session.lockDelay)
	}
	for i, number := range c.Shards {
		if number >= w.set.count {
			continue
		}
		if sh := &w.set.shards[number]; sh.owner == w && sh.fence == c.Fences[i] && sh.isClaimed() {
			x.vacate(w.set, number, until)
			x.moved(w.set, number)
			x.touch(w.set)
		}
	}
	return x.reply(wire.Code_OK)
}

// resize begins a change of the number of shards.
func (x sharding) resize(c *wire.ResizeShards) *wire.Reply {
	if r := cmp.Or(x.checkName(c.Set), x.checkCount(c.Count)); r != nil {
		return r
	}
	set := x.shardSets.byName[c.Set]
	switch {
	case set == nil || set.wanted() == c.Count:
		return x.reply(wire.Code_OK)
	case set.next != 0:
		return x.refuse(wire.Code_BUSY, "another change of the number of shards is under way")
	}
	if r := x.mayCount(set, c.Count); r != nil {
		return r
	}
	x.change(set, c.Count)
	return x.reply(wire.Code_OK)
}

// change begins a change of the number of shards: all workers are of the former one, and leave.
func (x sharding) change(set *shardSet, count uint32) {
	x.shardSets.all -= set.size()
	set.next = count
	x.shardSets.all += set.size()
	x.dirty.put(set.key(), set)
	for _, w := range set.workers {
		x.dismiss(w)
	}
	x.forsake(set)
	x.changedAll(set)
	x.touch(set)
}

// touch has the set planned at the end of the entry.
func (x sharding) touch(set *shardSet) {
	if set.at == 0 {
		x.shardSets.due.Push(set)
	}
}

// changedAll emits that more of a set has changed than a shard.
func (x sharding) changedAll(set *shardSet) {
	if set.changed != x.index {
		set.changed = x.index
		x.moves = append(x.moves, fact.ShardChange{Set: set.name, All: true})
	}
}

// moved emits what has become of a shard.
func (x sharding) moved(set *shardSet, number uint32) {
	change := fact.ShardChange{Set: set.name, Shard: number}
	if sh := &set.shards[number]; sh.owner != nil {
		change.Fence, change.Session, change.Handle, change.Moving = sh.fence, sh.owner.session.id, sh.owner.handle, sh.moving
	}
	x.moves = append(x.moves, change)
}
