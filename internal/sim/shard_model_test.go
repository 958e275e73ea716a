package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// auditedSet is what the audit knows of a set of shards: from the commands and their outcomes, the ends of sessions, group time,
// and the grants and recalls that entries have emitted.
type auditedSet struct {
	name     string
	count    uint32
	next     uint32 // the count that it changes to; 0: none
	joins    uint64
	workers  []*auditedWorker // in the order of joining
	shards   []auditedShard
	all      bool     // in this entry more has changed than a shard
	emitted  bool     // and a fact says so
	released []uint32 // shards that were released in this entry
	calm     calm
}

// auditedWorker is a worker. When its session has ended, its shards wait for one of the same name.
type auditedWorker struct {
	number   uint64
	session  wire.ID
	handle   uint64
	name     string
	member   uint64
	capacity uint32
	settle   int64
	base     uint64 // the largest fence when it joined: what it has under a smaller one it was not granted yet
	unbound  bool   // its session has no process
	left     bool   // its session was attached to another process since
	leaving  bool
	ended    bool
	endedAt  int64
	delay    int64 // until the end of a lock-delay; 0: none
	expired  bool  // its shards go to others
}

// auditedShard is a shard.
type auditedShard struct {
	owner  *auditedWorker
	fence  uint64
	moving bool
	delay  int64 // without an owner: until the end of a lock-delay; 0: none
}

// claimed reports whether the owner may work on the shard.
func (sh auditedShard) claimed() bool {
	return sh.owner != nil && !sh.owner.ended && sh.fence > sh.owner.base
}

// free reports whether the shard may be granted to any worker, once its lock-delay has passed.
func (sh auditedShard) free() bool { return sh.owner == nil || sh.owner.expired }

// until is when the shards of an ended worker go to others.
func (w *auditedWorker) until() int64 {
	if w.leaving {
		return w.delay
	}
	return max(w.delay, w.endedAt+w.settle)
}

// deserted reports whether the worker's process has ended, and its session lives on: it keeps what it has.
func (w *auditedWorker) deserted() bool { return !w.ended && (w.unbound || w.left) }

// takes reports whether shards are assigned to the worker.
func (w *auditedWorker) takes() bool { return !w.ended && !w.leaving && !w.deserted() }

func (set *auditedSet) wanted() uint32 {
	if set.next != 0 {
		return set.next
	}
	return set.count
}

// find returns the worker that is the handle of the session, or nil. What an earlier process of the session has left is none of its.
func (set *auditedSet) find(session wire.ID, handle uint64) *auditedWorker {
	i := slices.IndexFunc(set.workers, func(w *auditedWorker) bool { return !w.ended && !w.left && w.session == session && w.handle == handle })
	if i < 0 {
		return nil
	}
	return set.workers[i]
}

// owned counts the shards of a worker, and those of them that are to move.
func (set *auditedSet) owned(w *auditedWorker) (all, moving int) {
	for _, sh := range set.shards {
		all += btoi(sh.owner == w)
		moving += btoi(sh.owner == w && sh.moving)
	}
	return all, moving
}

// former returns the worker whose place one of the session takes: the first that an earlier process of the session has left, or the
// first of its name that has ended.
func (set *auditedSet) former(s machine.SessionView) (former *auditedWorker) {
	for _, w := range set.workers {
		same := w.name == s.Name && (w.name != "" || w.member == s.Member)
		switch {
		case w.leaving:
		case !w.ended && w.left && w.session == s.ID:
			if former == nil || former.ended || w.base < former.base {
				former = w
			}
		case former == nil && w.ended && same:
			former = w
		}
	}
	return former
}

// change begins a change of the count: all workers leave.
func (a *shardAudit) change(set *auditedSet, count uint32) {
	a.sim.shards.resized++
	a.sim.works.changes[set.name]++
	set.next, set.all = count, true
	set.calm.disturb()
	for _, w := range set.workers {
		a.leave(set, w)
	}
}

// leave has a worker get no more shards. What it was not granted yet has no owner.
func (a *shardAudit) leave(set *auditedSet, w *auditedWorker) {
	w.leaving, set.all = true, true
	set.calm.disturb()
	a.expire(set, w)
	delay := w.delay
	if lockDelay := a.sessions[w.session].LockDelay; w.left && lockDelay > 0 { // its process may go on
		delay = max(delay, a.m.Now()+lockDelay)
	}
	for i := range set.shards {
		if sh := &set.shards[i]; sh.owner == w && !w.ended && (!sh.claimed() || w.left) {
			*sh = auditedShard{delay: delay, fence: sh.fence}
		}
	}
}

// expire has the shards of an ended worker go to others, if it is time.
func (a *shardAudit) expire(set *auditedSet, w *auditedWorker) {
	now := a.m.Now()
	switch {
	case w.ended && !w.expired && w.until() <= now:
		w.expired, w.delay, set.all = true, 0, true
		a.sim.shards.settled += btoi(w.settle > 0)
	case w.delay <= now:
		w.delay = 0
	}
}

// advance ends what group time ends.
func (a *shardAudit) advance() {
	for _, set := range a.order {
		for _, w := range set.workers {
			a.expire(set, w)
		}
		for i := range set.shards {
			if sh := &set.shards[i]; sh.delay <= a.m.Now() {
				sh.delay = 0
			}
		}
	}
}

// sessionLost: the shards of a session that has ended wait.
func (a *shardAudit) sessionLost(id wire.ID, lockDelay int64) {
	a.each(id, func(set *auditedSet, w *auditedWorker) {
		a.sim.shards.lost++
		w.ended, w.endedAt = true, a.m.Now()
		if lockDelay > 0 {
			w.delay = max(w.delay, a.m.Now()+lockDelay)
		}
		set.stay(w)
		a.expire(set, w)
	})
}

// sessionUnbound: no shards are assigned to the workers of a session without a process, and none moves from them.
func (a *shardAudit) sessionUnbound(id wire.ID) {
	a.each(id, func(set *auditedSet, w *auditedWorker) {
		w.unbound = true
		set.stay(w)
	})
}

// sessionAttached: the next process of the session takes over what the one before has, but for what is to be released.
func (a *shardAudit) sessionAttached(id wire.ID) {
	if !a.sessions[id].Incarnation.IsZero() {
		return
	}
	a.each(id, func(set *auditedSet, w *auditedWorker) {
		w.unbound, w.left = false, true
		if w.leaving {
			a.leave(set, w)
		}
	})
}

// each calls f with all workers of a session, of whose sets more than a shard has changed.
func (a *shardAudit) each(session wire.ID, f func(*auditedSet, *auditedWorker)) {
	for _, set := range a.order {
		for _, w := range set.workers {
			if w.session == session && !w.ended {
				set.all = true
				set.calm.disturb()
				f(set, w)
			}
		}
	}
}

// stay ends that shards of a worker are to move.
func (set *auditedSet) stay(w *auditedWorker) {
	for i := range set.shards {
		if set.shards[i].owner == w {
			set.shards[i].moving = false
		}
	}
}

// settle removes workers that get nothing and have nothing, and ends a change of the count.
func (set *auditedSet) settle() {
	set.removeIdle()
	held := slices.ContainsFunc(set.shards, func(sh auditedShard) bool { return sh.owner != nil || sh.delay != 0 })
	if set.next != 0 && !held {
		set.count, set.next, set.all = set.next, 0, true
		set.shards = make([]auditedShard, set.count)
	}
}

func (set *auditedSet) removeIdle() {
	all := !slices.ContainsFunc(set.workers, func(w *auditedWorker) bool { return !w.expired })
	for i := range set.shards {
		if sh := &set.shards[i]; sh.owner != nil && sh.owner.expired && (all || set.next != 0) {
			*sh = auditedShard{fence: sh.fence}
		}
	}
	set.workers = slices.DeleteFunc(set.workers, func(w *auditedWorker) bool {
		owned, _ := set.owned(w)
		return owned == 0 && (w.ended || w.leaving || w.left)
	})
}
