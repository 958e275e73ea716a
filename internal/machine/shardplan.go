package machine

import (
	"slices"

	"github.com/conclave-go/conclave/internal/machine/quota"
)

// shardPlan decides which worker has which shard of a set: each as many as its capacity asks for, and no more than necessary move. It is made at
// the end of an entry, of everything that the entry has changed.
type shardPlan struct {
	sharding
	set    *shardSet
	grants *int // shards that the entry may still grant
	halted bool // they were too few
	shares map[*worker]*quota.Party
}

// planAll plans the sets of which something has changed, in the order of their names. Those that the entry has no room for remain.
func (x sharding) planAll() {
	if x.shardSets.due.Len() == 0 {
		return
	}
	grants := min(x.split, MaxGrants)
	var rest []*shardSet
	for x.shardSets.due.Len() > 0 {
		p := shardPlan{sharding: x, set: x.shardSets.due.Pop(), grants: &grants}
		if p.make(); p.halted {
			rest = append(rest, p.set)
		}
	}
	for _, set := range rest {
		x.shardSets.due.Push(set)
	}
}

func (p *shardPlan) make() {
	freed := p.freeExpired()
	p.removeIdle()
	if freed {
		p.assign()
		p.freeExpired() // if those that have left were the last others
		p.removeIdle()  // also those whose last shard went to another
	}
	if len(p.set.workers) == 0 && p.set.delayed == 0 {
		p.shardSets.remove(p.set)
		p.dirty.drop(p.set.key())
		p.changedAll(p.set)
	}
}

func (p *shardPlan) assign() {
	p.resized()
	if !p.grantClaims() || p.set.next != 0 {
		return
	}
	p.divide()
	if p.grantFree() && !p.isWaiting() {
		p.recall()
	}
}

// freeExpired takes from the workers that have expired what goes to no others: those of the former number of shards, or if no worker
// follows. It reports whether the entry had room for that.
func (p *shardPlan) freeExpired() bool {
	if p.set.next == 0 && slices.ContainsFunc(p.set.workers, func(w *worker) bool { return !w.expired }) {
		return true
	}
	p.each(func(number uint32, sh *shard) bool {
		switch {
		case sh.owner == nil || !sh.owner.expired:
			return true
		case p.left <= 0:
			p.halted = true
			return false
		}
		p.left--
		p.vacate(p.set, number, 0)
		return true
	})
	return !p.halted
}

// removeIdle removes the workers that get no shards and have none.
func (p *shardPlan) removeIdle() {
	p.set.workers = slices.DeleteFunc(p.set.workers, func(w *worker) bool {
		idle := w.isIdle()
		if idle {
			p.shardSets.workers--
			if w.ends() != 0 {
				p.shardSets.times.Remove(w)
			}
			if w.session != nil {
				w.session.workers.Remove(w)
			}
			p.dirty.drop(w.key())
		}
		return idle
	})
}

// each calls f with the shards in their order, until it returns false.
func (p *shardPlan) each(f func(number uint32, sh *shard) bool) {
	for i := range p.set.shards {
		if !f(uint32(i), &p.set.shards[i]) {
			return
		}
	}
}

// resized ends a change of the number of shards, once the former ones have no owner.
func (p *shardPlan) resized() {
	set := p.set
	if set.next == 0 || set.delayed > 0 || slices.ContainsFunc(set.workers, func(w *worker) bool { return w.shards > 0 }) {
		return
	}
	p.shardSets.all -= set.size()
	set.count, set.next, set.generation = set.next, 0, p.index
	p.shardSets.all += set.size()
	set.shards = make([]shard, set.count)
	p.dirty.put(set.key(), set)
	p.changedAll(set)
}

// grantClaims grants workers what they have from those before them, and reports whether the entry has room for more.
func (p *shardPlan) grantClaims() bool {
	unclaimed := make(map[*worker][]uint32) // ascending
	p.each(func(number uint32, sh *shard) bool {
		if w := sh.owner; w != nil && w.takes() && w.delay == 0 && !sh.isClaimed() {
			unclaimed[w] = append(unclaimed[w], number)
		}
		return true
	})
	for _, w := range p.set.workers {
		for _, number := range unclaimed[w] {
			if !p.grant(number, w) {
				return false
			}
		}
	}
	return p.fences < maxFences
}

// grant grants a shard, if the entry may.
func (p *shardPlan) grant(number uint32, w *worker) bool {
	switch {
	case p.fences >= maxFences:
		return false
	case *p.grants <= 0:
		p.halted = true
		return false
	}
	*p.grants--
	sh := &p.set.shards[number]
	if sh.owner != w {
		if sh.owner != nil {
			sh.owner.shards--
		}
		w.shards++
	}
	*sh = shard{owner: w, fence: p.nextFences(1)}
	w.session.sharded++
	p.record(p.set, number)
	p.moved(p.set, number)
	return true
}

// divide decides how many shards each worker gets. Those that wait for a worker of a name, and those of a process that has ended, count for none.
func (p *shardPlan) divide() {
	n := int(p.set.count)
	p.shares = make(map[*worker]*quota.Party)
	var parties []*quota.Party
	for _, w := range p.set.workers {
		switch {
		case w.takes():
			p.shares[w] = &quota.Party{Weight: int(w.capacity), Has: w.shards - w.moving}
			parties = append(parties, p.shares[w])
		case w.waits(), w.isLive() && w.isDeserted():
			n -= w.shards
		}
	}
	if len(parties) > 0 {
		quota.Divide(n, parties)
	}
}

// grantFree grants the shards that have no owner, each to the worker that lacks most, and reports whether the entry has room for more.
func (p *shardPlan) grantFree() bool {
	more := true
	p.each(func(number uint32, sh *shard) bool {
		if !sh.isFree() || sh.delay != 0 {
			return true
		}
		w := p.poorest()
		if w == nil {
			return false
		}
		if more = p.grant(number, w); more {
			p.shares[w].Has++
		}
		return more
	})
	return more
}

// poorest returns the worker that lacks most shards, of equal ones the last, or nil.
func (p *shardPlan) poorest() (poorest *worker) {
	most := 1
	for _, w := range p.set.workers {
		if party := p.shares[w]; party != nil && party.Gets-party.Has >= most {
			poorest, most = w, party.Gets-party.Has
		}
	}
	return poorest
}

// richest returns the worker that has most shards too many, and one that can move, of equal ones the first, or nil.
func (p *shardPlan) richest(movable map[*worker][]uint32) (richest *worker) {
	most := 1
	for _, w := range slices.Backward(p.set.workers) {
		if party := p.shares[w]; party != nil && party.Has-party.Gets >= most && len(movable[w]) > 0 {
			richest, most = w, party.Has-party.Gets
		}
	}
	return richest
}

// isWaiting reports whether shards wait for a worker that has ended: until that has passed, none moves, so that nothing moves twice.
func (p *shardPlan) isWaiting() bool {
	return slices.ContainsFunc(p.set.workers, func(w *worker) bool { return w.waits() })
}

// recall asks the workers that have too many shards to release some, a few at a time.
func (p *shardPlan) recall() {
	moving, most := 0, 0
	for _, w := range p.set.workers {
		if !w.leaving {
			moving += w.moving
		}
		if party := p.shares[w]; party != nil {
			most = max(most, party.Has-party.Gets)
		}
	}
	if most == 0 {
		return
	}
	movable := p.movable()
	for ; moving < MaxMoves; moving++ {
		w := p.richest(movable)
		if w == nil {
			return
		}
		last := len(movable[w]) - 1
		number := movable[w][last]
		movable[w] = movable[w][:last]
		p.set.shards[number].moving = true
		w.moving++
		p.shares[w].Has--
		p.record(p.set, number)
		p.moved(p.set, number)
	}
}

// movable returns the shards that workers work on and that are not to move yet.
func (p *shardPlan) movable() map[*worker][]uint32 {
	movable := make(map[*worker][]uint32)
	p.each(func(number uint32, sh *shard) bool {
		if sh.isClaimed() && !sh.moving {
			movable[sh.owner] = append(movable[sh.owner], number)
		}
		return true
	})
	return movable
}
