package machine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// checkShards compares what queries show of sets of shards with the reference, with what a follower of the changes has, and
// with what the plan is for.
func (r *rig) checkShards() error {
	sets := slices.SortedFunc(slices.Values(r.model.ShardSets), func(a, b *reference.ShardSet) int { return cmp.Compare(a.Name, b.Name) })
	views := allShardSets(r.straight)
	for i, s := range sets[:min(len(sets), len(views))] {
		if err := sameView(views[i], r.shownShards(s)); err != nil {
			return fmt.Errorf("set %w", err)
		}
		if err := r.checkBalance(views[i]); err != nil {
			return err
		}
	}
	if len(sets) != len(views) {
		return fmt.Errorf("%d sets of shards, want %d", len(views), len(sets))
	}
	return r.followShards(views)
}

// shownShards is a set as a query must show it.
func (r *rig) shownShards(s *reference.ShardSet) ShardsView {
	v := ShardsView{Name: s.Name, Count: s.Count, Next: s.Next, Generation: s.Generation}
	for _, w := range s.Workers {
		of := ShardWorkerView{
			Number: w.Number, Name: w.Name, Session: w.Session, Handle: w.Handle, Member: w.Member, Client: w.Client, Live: reference.Lives(&r.model, w.Session),
			Leaving: w.Leaving, Left: w.Left, Capacity: w.Capacity, Shards: reference.ShardsOf(s, w), Remaining: reference.Remaining(&r.model, w),
		}
		if !of.Live {
			of.Session, of.Left = wire.ID{}, false
		} else if reference.Takes(&r.model, w) {
			v.Takers++
		}
		v.Workers = append(v.Workers, of)
	}
	for i, sh := range s.Shards {
		of := ShardView{}
		switch {
		case reference.Claimed(&r.model, sh):
			of = ShardView{Worker: sh.Owner.Number, Fence: sh.Fence, Moving: sh.Moving || sh.Owner.Leaving}
			if v.Owned++; of.Moving {
				v.Moving++
			}
		case sh.Owner != nil && !sh.Owner.Expired:
			of.Worker = sh.Owner.Number
			v.Waiting++
		case reference.Delayed(s, i):
			v.Waiting++
		}
		v.Shards = append(v.Shards, of)
	}
	return v
}

// checkBalance wants each worker to have its share by capacity, rounded down or up, where nothing is under way.
func (r *rig) checkBalance(v ShardsView) error {
	at, pending := r.straight.NextDeadline()
	if (grouping{r.straight}).isSealed() || v.Next != 0 || v.Moving > 0 || v.Waiting > 0 || v.Takers == 0 || v.Takers < len(v.Workers) || pending && at <= r.straight.Now() {
		return nil
	}
	capacity := 0
	for _, w := range v.Workers {
		capacity += int(w.Capacity)
	}
	if v.Owned != int(v.Count) {
		return fmt.Errorf("set %q: %d of %d shards have an owner, and nothing is under way", v.Name, v.Owned, v.Count)
	}
	for _, w := range v.Workers {
		share := int(v.Count) * int(w.Capacity)
		if w.Shards < share/capacity || w.Shards > (share+capacity-1)/capacity {
			return fmt.Errorf("set %q: worker %d has %d shards, and its share is %d/%d", v.Name, w.Number, w.Shards, share, capacity)
		}
	}
	if r.model.Reached != nil && v.Takers > 1 {
		r.model.Reached["shards: balanced"]++
	}
	return nil
}

// shardOwner is what a follower of a set has of a shard.
type shardOwner struct {
	session wire.ID
	handle  uint64
	fence   uint64
	moving  bool
}

// owners returns what a query shows of the shards to a follower.
func (v ShardsView) owners() []shardOwner {
	workers := map[uint64]ShardWorkerView{}
	for _, w := range v.Workers {
		workers[w.Number] = w
	}
	owners := make([]shardOwner, len(v.Shards))
	for i, sh := range v.Shards {
		if w := workers[sh.Worker]; sh.Fence != 0 {
			owners[i] = shardOwner{w.Session, w.Handle, sh.Fence, sh.Moving}
		}
	}
	return owners
}

// followShards keeps the view of a follower of each set, which reads the set again where all has changed. It must equal the
// state. No shard may go from one owner to another without a release, unless the session of the first one has ended, or is another
// process's since.
func (r *rig) followShards(views []ShardsView) error {
	var errs []error
	again, released := map[string]bool{}, map[string]bool{}
	for _, c := range r.last.Shards {
		switch {
		case c.All && (again[c.Set] || c != fact.ShardChange{Set: c.Set, All: true}):
			errs = append(errs, fmt.Errorf("%+v was emitted twice, or is more than that all has changed", c))
		case c.All:
			again[c.Set] = true
			continue
		case c.Fence == 0:
			released[fmt.Sprint(c.Set, c.Shard)] = true
		}
		if err := r.followShard(c); err != nil && !again[c.Set] {
			errs = append(errs, err)
		}
	}
	followed := map[string][]shardOwner{}
	for _, v := range views {
		owners := v.owners()
		if !again[v.Name] && !slices.Equal(owners, r.shards[v.Name]) {
			errs = append(errs, fmt.Errorf("a follower of %q has\n%v\nwant\n%v", v.Name, r.shards[v.Name], owners))
		}
		for i, was := range r.owned[v.Name] {
			s := r.straight.sessions[was.session]
			ended := s == nil || s.dead() || s.claimable(was.fence)
			if was.fence != 0 && i < len(owners) && owners[i].fence != 0 && owners[i].fence != was.fence && owners[i].session != was.session && !ended && !released[fmt.Sprint(v.Name, i)] {
				errs = append(errs, fmt.Errorf("shard %d of %q had the owner %+v, and has %+v", i, v.Name, was, owners[i]))
			}
		}
		followed[v.Name] = owners
	}
	for name := range r.shards {
		if followed[name] == nil && !again[name] {
			errs = append(errs, fmt.Errorf("set %q was removed without a change", name))
		}
	}
	r.shards, r.owned = followed, map[string][]shardOwner{}
	for name, owners := range followed {
		r.owned[name] = slices.Clone(owners)
	}
	return errors.Join(errs...)
}

// followShard applies a change of one shard to what a follower has.
func (r *rig) followShard(c fact.ShardChange) error {
	owners := r.shards[c.Set]
	if int(c.Shard) >= len(owners) {
		return fmt.Errorf("set %q has %d shards, and %+v was emitted", c.Set, len(owners), c)
	}
	was, is := owners[c.Shard], shardOwner{c.Session, c.Handle, c.Fence, c.Moving}
	owners[c.Shard] = is
	if c.Moving && is != (shardOwner{was.session, was.handle, was.fence, !was.moving}) {
		return fmt.Errorf("shard %d of %q is to move from %+v, was %+v", c.Shard, c.Set, is, was)
	}
	if !c.Moving && c.Fence != 0 && was.fence != 0 {
		return fmt.Errorf("shard %d of %q is granted to %+v, and was not released by %+v", c.Shard, c.Set, is, was)
	}
	return nil
}

// grantedShards returns the fences of the shards that the last entry has granted.
func (r *rig) grantedShards() (fences []uint64) {
	for _, c := range r.last.Shards {
		if c.Fence != 0 && !c.Moving {
			fences = append(fences, c.Fence)
		}
	}
	return fences
}
