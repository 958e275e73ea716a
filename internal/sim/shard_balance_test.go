package sim

import (
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/machine"
)

// load is how many shards a worker has that are not to move.
func (set *auditedSet) load(w *auditedWorker) int {
	all, moving := set.owned(w)
	return all - moving
}

// part returns how many shards a worker is to have by its capacity: the smaller and the larger number.
func (set *auditedSet) part(w *auditedWorker) (few, many int) {
	n, sum := int(set.count), 0
	for _, o := range set.workers {
		if o.takes() {
			sum += int(o.capacity)
		} else if o.ended && !o.expired || o.deserted() {
			owned, _ := set.owned(o)
			n -= owned
		}
	}
	few = n * int(w.capacity) / sum
	return few, few + btoi(few*sum < n*int(w.capacity))
}

// waits reports whether shards wait for a worker of a name.
func (set *auditedSet) waits() bool {
	return slices.ContainsFunc(set.workers, func(w *auditedWorker) bool { return w.ended && !w.expired })
}

// moving counts the shards that are to move from workers that have too many.
func (set *auditedSet) moving() (n int) {
	for _, sh := range set.shards {
		n += btoi(sh.moving && !sh.owner.leaving)
	}
	return n
}

// isQuiet reports whether nothing of the set changes by itself.
func (set *auditedSet) isQuiet() bool {
	busy := func(w *auditedWorker) bool { return !w.takes() || w.delay != 0 }
	changes := func(sh auditedShard) bool { return !sh.claimed() || sh.moving }
	return set.next == 0 && !slices.ContainsFunc(set.workers, busy) && !slices.ContainsFunc(set.shards, changes)
}

// quiet reports whether no set changes by itself.
func (a *shardAudit) quiet() bool {
	return !slices.ContainsFunc(a.order, func(set *auditedSet) bool { return !set.isQuiet() })
}

// unfinished describes the sets that change.
func (a *shardAudit) unfinished() (s string) {
	for _, set := range a.order {
		if set.isQuiet() {
			continue
		}
		s += fmt.Sprintf("%s, %d shards, then %d:", set.name, set.count, set.next)
		for _, w := range set.workers {
			all, moving := set.owned(w)
			s += fmt.Sprintf(" %+v has %d, moving %d;", *w, all, moving)
		}
	}
	return s
}

// check checks a set after an entry: no shard is left over for which there is a worker, and none has too many unless some move.
func (a *shardAudit) check(set *auditedSet, removed bool) {
	if set.all != set.emitted {
		a.sim.fail("%s: more than a shard has changed %t, emitted %t: %+v", set.name, set.all, set.emitted, set)
	}
	if len(set.released) > 0 {
		a.sim.fail("%s: %v were released, which was not emitted", set.name, set.released)
	}
	a.checkView(set, removed)
	if removed {
		return
	}
	takers := slices.ContainsFunc(set.workers, func(w *auditedWorker) bool { return w.takes() })
	for i, sh := range set.shards {
		switch own := sh.owner; {
		case own != nil && own.takes() && !sh.claimed() && own.delay == 0:
			a.sim.fail("%s: shard %d of worker %d, %+v, is not granted to it again", set.name, i, own.number, own)
		case takers && set.next == 0 && sh.free() && sh.delay == 0:
			a.sim.fail("%s: shard %d is free: %+v", set.name, i, set)
		}
	}
	for _, w := range set.workers {
		if !w.takes() || set.next != 0 || set.waits() {
			continue
		}
		_, many := set.part(w)
		movable := slices.ContainsFunc(set.shards, func(sh auditedShard) bool { return sh.owner == w && sh.claimed() && !sh.moving })
		if set.load(w) > many && movable && set.moving() < mostMoving {
			a.sim.fail("%s: worker %d has %d shards, and is to have %d at most; %d are to move", set.name, w.number, set.load(w), many, set.moving())
		}
	}
	a.checkCalm(set)
}

// checkView: what workers can ask for is what the audit knows.
func (a *shardAudit) checkView(set *auditedSet, removed bool) {
	v := machine.Ask[*machine.ShardsView](a.m, machine.ShardsQuery{Name: set.name})
	switch {
	case (v == nil) != removed:
		a.sim.fail("%s: the view is %+v, of %+v", set.name, v, set)
	case removed:
		return
	case v.Count != set.count || v.Next != set.next || len(v.Shards) != len(set.shards) || len(v.Workers) != len(set.workers):
		a.sim.fail("%s: the view is %+v, of %+v", set.name, v, set)
	}
	for i, w := range set.workers {
		if o := v.Workers[i]; o.Number != w.number || o.Live == w.ended || o.Leaving != w.leaving || o.Live && (o.Session != w.session || o.Handle != w.handle) {
			a.sim.fail("%s: worker %+v is shown as %+v", set.name, w, o)
		}
	}
	for i, sh := range set.shards {
		want := machine.ShardView{}
		if !sh.free() {
			want.Worker = sh.owner.number
		}
		if sh.claimed() {
			want.Fence, want.Moving = sh.fence, sh.moving || sh.owner.leaving
		}
		if v.Shards[i] != want {
			a.sim.fail("%s: shard %d is shown as %+v, and is %+v", set.name, i, v.Shards[i], want)
		}
	}
}

// calm is what a set was when it was quiet last, and whether nothing but one worker has joined since.
type calm struct {
	owners    []*auditedWorker
	capacity  uint32 // of all workers; 0: they differ
	workers   int
	joiner    *auditedWorker
	disturbed bool
}

func (c *calm) disturb() { c.disturbed = true }

func (c *calm) joined(w *auditedWorker, capacity uint32) {
	if c.joiner != nil || capacity != c.capacity {
		c.disturb()
	}
	c.joiner = w
}

// checkCalm: in a quiet set every worker has its part. If nothing but one worker has joined since it was quiet last, and all have one
// capacity, just that worker's part has moved.
func (a *shardAudit) checkCalm(set *auditedSet) {
	if !set.isQuiet() {
		return
	}
	for _, w := range set.workers {
		if few, many := set.part(w); set.load(w) < few || set.load(w) > many {
			a.sim.fail("%s is quiet, and worker %d has %d shards, not %d or %d: %+v", set.name, w.number, set.load(w), few, many, set)
		}
	}
	c := &set.calm
	a.sim.shards.calmed += btoi(c.disturbed || c.joiner != nil)
	if c.joiner != nil && !c.disturbed && len(c.owners) == len(set.shards) {
		a.sim.shards.added++
		a.sim.shards.addedMany += btoi(len(c.owners) > mostMoving && c.workers == 1)
		for i, sh := range set.shards {
			if sh.owner != c.owners[i] && sh.owner != c.joiner {
				a.sim.fail("%s: only worker %d has joined, and shard %d has moved from %d to %d", set.name, c.joiner.number, i, c.owners[i].number, sh.owner.number)
			}
		}
	}
	*c = calm{workers: len(set.workers), capacity: set.workers[0].capacity}
	for _, w := range set.workers {
		if w.capacity != c.capacity {
			c.capacity = 0
		}
	}
	for _, sh := range set.shards {
		c.owners = append(c.owners, sh.owner)
	}
}
