package reference

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// What time and the ends of sessions do to shards and their workers.

// ofSession returns the workers of a session with their sets, in the order in which they have joined.
func (x shards) ofSession(id wire.ID) (all []shardWorker) {
	for _, s := range x.ShardSets {
		for _, w := range s.Workers {
			if w.Session == id {
				all = append(all, shardWorker{s, w})
			}
		}
	}
	slices.SortFunc(all, func(a, b shardWorker) int { return cmp.Compare(a.joined, b.joined) })
	return all
}

type shardWorker struct {
	set *ShardSet
	*ShardWorker
}

// ended announces the sets that a session works for, which has ended.
func (x shards) ended(id wire.ID) {
	for _, w := range x.ofSession(id) {
		x.announce(w.set)
	}
}

// held counts the shards that a session has claimed.
func (x shards) held(id wire.ID) (n int) {
	for _, w := range x.ofSession(id) {
		for _, sh := range w.set.Shards {
			if sh.Owner == w.ShardWorker && sh.Fence > w.joined {
				n++
			}
		}
	}
	return n
}

// releaseOf releases the first worker of an ended session.
func (x shards) releaseOf(d *dead) bool {
	all := x.ofSession(d.s.ID)
	if len(all) > 0 {
		x.vanish(all[0].set, all[0].ShardWorker, d)
	}
	return len(all) > 0
}

// vanishDead releases the workers of a set whose sessions have ended.
func (x shards) vanishDead(s *ShardSet) {
	for _, w := range s.Workers {
		if d := x.lateSession(w.Session); d != nil {
			x.reached("released by a join")
			x.vanish(s, w, d)
		}
	}
}

// vanish reserves what a worker has, whose session has ended.
func (x shards) vanish(s *ShardSet, w *ShardWorker, d *dead) {
	w.Session, w.Left = wire.ID{}, false
	if w.delay = max(w.delay, d.until); w.delay <= x.Now {
		w.delay = 0
	}
	w.until = d.at
	if !w.Leaving {
		w.until = later(d.at, w.settle)
	}
	if w.until = max(w.until, w.delay); w.until <= x.Now {
		x.reached("expired at once")
		w.expire()
	}
	x.announce(s)
}

// unbound keeps what the workers of a session have, whose process has ended.
func (x shards) unbound(id wire.ID) {
	for _, w := range x.ofSession(id) {
		x.reached("deserted")
		w.set.keep(w.ShardWorker)
		x.announce(w.set)
	}
}

// attached notes that the workers of a session are those of an earlier process. What they were to release is free.
func (x shards) attached(id wire.ID) {
	for _, w := range x.ofSession(id) {
		if w.Left = true; w.Leaving {
			x.reached("attached, and its worker leaves")
			x.dismissed(w.set, w.ShardWorker)
		}
		x.announce(w.set)
	}
}

// keep ends that shards of a worker are to move.
func (s *ShardSet) keep(w *ShardWorker) {
	for i := range s.Shards {
		if s.Shards[i].Owner == w {
			s.Shards[i].Moving = false
		}
	}
}

// expire lets others have what a worker had.
func (w *ShardWorker) expire() { w.Expired, w.until, w.delay = true, 0, 0 }

// considerDelays offers the lock-delays of shards, by their durable keys.
func (x shards) considerDelays(consider func(at int64, key string, end func())) {
	for _, s := range x.ShardSets {
		for i, sh := range s.Shards {
			consider(sh.delay, "f"+s.Name+"\x00"+string(binary.BigEndian.AppendUint64(nil, uint64(i))), func() {
				x.reached("the end of a shard's lock-delay")
				s.Shards[i].delay, s.due = 0, true
			})
		}
	}
}

// time is when something ends for a worker; 0: never.
func (w *ShardWorker) time() int64 {
	if w.Session == (wire.ID{}) {
		return w.until
	}
	return w.delay
}

// endWorker ends the first time of a worker that has passed: it expires, or is granted what it has taken over.
func (x shards) endWorker() bool {
	var first shardWorker
	for _, s := range x.byName() {
		for _, w := range s.Workers {
			if at := w.time(); at != 0 && at <= x.Now && (first.ShardWorker == nil || at < first.time()) {
				first = shardWorker{s, w}
			}
		}
	}
	switch {
	case first.ShardWorker == nil:
		return false
	case first.Session == wire.ID{}:
		x.reached("expired")
		first.expire()
		x.announce(first.set)
	default:
		x.reached("the end of a worker's lock-delay")
		first.delay, first.set.due = 0, true
	}
	return true
}

// DueShardSets counts the sets that the next entry plans.
func DueShardSets(r *Model) (n int) {
	for _, s := range r.ShardSets {
		if s.due {
			n++
		}
	}
	return n
}

// Takes reports whether a worker is granted shards.
func Takes(r *Model, w *ShardWorker) bool { return shards{r}.takes(w) }

// Claimed reports that a shard has an owner whose work on it may be under way.
func Claimed(r *Model, sh Shard) bool { return shards{r}.claimed(sh) }

// Delayed reports that the lock-delay of a shard has not ended.
func Delayed(s *ShardSet, i int) bool { return s.Shards[i].delay != 0 }

// ShardsOf counts the shards that are assigned to a worker.
func ShardsOf(s *ShardSet, w *ShardWorker) (n int) {
	for _, sh := range s.Shards {
		if sh.Owner == w {
			n++
		}
	}
	return n
}

// Remaining is for how long what a worker had, whose session was released, waits for another one of its name.
func Remaining(r *Model, w *ShardWorker) int64 { return max(0, w.until-r.Now) }

func (x shards) reached(what string) { jobs(x).reached("shards: " + what) }
