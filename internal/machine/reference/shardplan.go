package reference

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
)

// How shards are assigned to workers.

// plan plans the sets that are due, at the end of an entry.
func (x shards) plan() {
	x.shardGrants = min(cmp.Or(x.Split, MaxReleased), MaxGrants)
	for _, s := range x.byName() {
		if s.due {
			s.due = !x.planSet(s)
		}
	}
}

// byName returns the sets by name.
func (x shards) byName() []*ShardSet {
	return slices.SortedFunc(slices.Values(x.ShardSets), func(a, b *ShardSet) int { return cmp.Compare(a.Name, b.Name) })
}

// planSet plans a set; false: the entry has no room for all grants, and the next one goes on.
func (x shards) planSet(s *ShardSet) bool {
	done := x.freeExpired(s)
	x.dismiss(s)
	if done {
		x.endChange(s)
		done = x.grantAll(s)
		done = x.freeExpired(s) && done // if those that left were the last others
		x.dismiss(s)
	}
	x.remove(s)
	return done
}

// freeExpired takes from the workers that have expired what goes to no others: if there are none, or the count changes. false:
// the entry has no room for all.
func (x shards) freeExpired(s *ShardSet) bool {
	if s.Next == 0 && slices.ContainsFunc(s.Workers, func(w *ShardWorker) bool { return !w.Expired }) {
		return true
	}
	for i, sh := range s.Shards {
		if sh.Owner == nil || !sh.Owner.Expired {
			continue
		}
		if x.quota <= 0 {
			x.reached("a portion of expired ones left")
			return false
		}
		x.quota--
		s.Shards[i] = Shard{}
	}
	return true
}

// grantAll grants what can be granted, and then recalls shards; false: the entry has no room for all grants.
func (x shards) grantAll(s *ShardSet) bool {
	if !x.grantUnclaimed(s) {
		return false
	}
	if s.Next != 0 {
		return true
	}
	quotas := x.quotas(s)
	if !x.grantFree(s, quotas) {
		return false
	}
	x.recall(s, quotas)
	return true
}

// dismiss removes the workers that have nothing and get nothing.
func (x shards) dismiss(s *ShardSet) {
	s.Workers = slices.DeleteFunc(s.Workers, func(w *ShardWorker) bool {
		return (w.Leaving || w.Session.IsZero() || w.Left) && !slices.ContainsFunc(s.Shards, func(sh Shard) bool { return sh.Owner == w })
	})
}

// endChange ends a change of the count, once no shard is owned.
func (x shards) endChange(s *ShardSet) {
	if s.Next == 0 || slices.ContainsFunc(s.Shards, func(sh Shard) bool { return sh.Owner != nil || sh.delay != 0 }) {
		return
	}
	x.reached("the end of a change")
	s.Count, s.Next, s.Generation = s.Next, 0, x.index
	s.Shards = make([]Shard, s.Count)
	x.announce(s)
}

// takes reports whether a worker is granted shards.
func (x shards) takes(w *ShardWorker) bool { return x.live(w) && !w.Leaving && !x.deserted(w) }

// grantUnclaimed grants to the workers what they have taken over; false: the entry has no room for all.
func (x shards) grantUnclaimed(s *ShardSet) bool {
	for _, w := range s.Workers {
		for i, sh := range s.Shards {
			if sh.Owner != w || !x.takes(w) || w.delay != 0 || x.claimed(sh) {
				continue
			}
			if !x.grant(s, i, w) {
				return false
			}
			x.reached("a claim")
		}
	}
	return true
}

// grantFree grants the shards that are free; false: the entry has no room for all.
func (x shards) grantFree(s *ShardSet, quotas map[*ShardWorker]int) bool {
	for i, sh := range s.Shards {
		if !sh.free() || sh.delay != 0 {
			continue
		}
		var most *ShardWorker
		for _, w := range s.Workers {
			if x.takes(w) && (most == nil || quotas[w]-s.load(w) >= quotas[most]-s.load(most)) {
				most = w
			}
		}
		if most == nil {
			return true
		}
		if !x.grant(s, i, most) {
			return false
		}
		x.reached("a grant")
	}
	return true
}

// grant grants a shard; false: the entry has no room for it.
func (x shards) grant(s *ShardSet, i int, w *ShardWorker) bool {
	if x.shardGrants == 0 {
		x.reached("a portion left")
		return false
	}
	x.shardGrants--
	x.Granted++
	s.Shards[i] = Shard{Owner: w, Fence: x.Granted}
	x.changes(fact.ShardChange{Set: s.Name, Shard: uint32(i), Fence: x.Granted, Session: w.Session, Handle: w.Handle})
	return true
}

// load counts what a worker has and is to keep.
func (s *ShardSet) load(w *ShardWorker) (n int) {
	for _, sh := range s.Shards {
		if sh.Owner == w && !sh.Moving {
			n++
		}
	}
	return n
}

// quotas returns how many shards each worker should have: its share by capacity, rounded down or up.
func (x shards) quotas(s *ShardSet) map[*ShardWorker]int {
	n, capacity := len(s.Shards), 0
	for _, sh := range s.Shards {
		if sh.Owner != nil && (x.reserved(sh.Owner) || x.deserted(sh.Owner)) {
			n--
		}
	}
	for _, w := range s.Workers {
		if x.takes(w) {
			capacity += int(w.Capacity)
		}
	}
	quotas, rest := map[*ShardWorker]int{}, n
	var eligible []*ShardWorker
	for _, w := range s.Workers {
		if !x.takes(w) {
			continue
		}
		quotas[w] = n * int(w.Capacity) / capacity
		rest -= quotas[w]
		if n*int(w.Capacity)%capacity != 0 {
			eligible = append(eligible, w)
		}
	}
	above := func(w *ShardWorker) int { return s.load(w) - quotas[w] }
	slices.SortFunc(eligible, func(a, b *ShardWorker) int {
		switch {
		case above(a) > 0 && above(b) > 0:
			return cmp.Compare(a.Number, b.Number)
		case above(a) <= 0 && above(b) <= 0:
			return cmp.Or(cmp.Compare(above(a), above(b)), cmp.Compare(b.Number, a.Number))
		case above(a) > 0:
			return -1
		}
		return 1
	})
	for _, w := range eligible[:min(rest, len(eligible))] { // fewer if there is no worker
		quotas[w]++
	}
	return quotas
}

// recall asks workers for what they have above their quotas, for a few shards at a time.
func (x shards) recall(s *ShardSet, quotas map[*ShardWorker]int) {
	if slices.ContainsFunc(s.Workers, x.reserved) {
		return
	}
	for s.moving() < MaxMoves {
		var most *ShardWorker
		for _, w := range s.Workers {
			if x.takes(w) && s.load(w) > quotas[w] && x.last(s, w) >= 0 && (most == nil || s.load(w)-quotas[w] > s.load(most)-quotas[most]) {
				most = w
			}
		}
		if most == nil {
			return
		}
		x.reached("a recall")
		i := x.last(s, most)
		s.Shards[i].Moving = true
		x.changes(fact.ShardChange{Set: s.Name, Shard: uint32(i), Fence: s.Shards[i].Fence, Session: most.Session, Handle: most.Handle, Moving: true})
	}
	x.reached("as many moves as there may be")
}

// moving counts the shards that are to move, but for those of workers that leave.
func (s *ShardSet) moving() (n int) {
	for _, sh := range s.Shards {
		if sh.Owner != nil && !sh.Owner.Leaving && sh.Moving {
			n++
		}
	}
	return n
}

// last returns the last shard that a worker has claimed and that is not to move; -1: none.
func (x shards) last(s *ShardSet, w *ShardWorker) int {
	last := -1
	for i, sh := range s.Shards {
		if sh.Owner == w && x.claimed(sh) && !sh.Moving {
			last = i
		}
	}
	return last
}

// remove removes a set that nothing is left of.
func (x shards) remove(s *ShardSet) {
	if len(s.Workers) > 0 || slices.ContainsFunc(s.Shards, func(sh Shard) bool { return sh.delay != 0 }) {
		return
	}
	x.reached("a set removed")
	x.announce(s)
	x.ShardSets = slices.DeleteFunc(x.ShardSets, func(o *ShardSet) bool { return o == s })
}
