package machine

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// shardLoader is a loader as far as it reads sets of shards, their workers, and what is assigned to those.
type shardLoader struct{ *loader }

func (ld shardLoader) pair(kind byte, rest string, value []byte) error {
	switch kind {
	case shardSetKind:
		return ld.shardSet(rest, value)
	case shardWorkerKind:
		return ld.shardWorker(rest, value)
	}
	return ld.shard(rest, value)
}

func (ld shardLoader) shardSet(rest string, value []byte) error {
	var st wire.ShardSetState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	sets := &ld.m.shardSets
	switch {
	case !isName(rest):
		return errShape
	case sets.byName[rest] != nil:
		return errTwice
	case st.Count < 1, st.Count > MaxShards, st.Next > MaxShards, st.Next == st.Count, st.Generation == 0, st.Joins == 0, st.Joins == math.MaxUint64,
		len(sets.byName) >= MaxShardSets+ReservedShardSets:
		return errRange
	}
	set := &shardSet{name: rest, count: st.Count, next: st.Next, generation: st.Generation, joins: st.Joins}
	if sets.all+set.size() > MaxAllShards+ReservedShards {
		return errRange
	}
	set.shards = make([]shard, st.Count)
	sets.add(set)
	return nil
}

// cutNumber splits what a name and a number were joined to.
func cutNumber(rest string) (name string, number uint64, ok bool) {
	at := len(rest) - 9
	if at < 1 || rest[at] != 0 {
		return "", 0, false
	}
	return rest[:at], binary.BigEndian.Uint64([]byte(rest[at+1:])), true
}

func (ld shardLoader) shardWorker(rest string, value []byte) error {
	st := new(wire.ShardWorkerState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	name, number, ok := cutNumber(rest)
	live := len(st.Session) > 0
	switch {
	case !ok, st.Name != "" && !isName(st.Name):
		return errShape
	case number == 0, st.Capacity < 1, st.Capacity > MaxCapacity, st.Settle < 0, st.Settle > MaxSettle, st.Joined == 0, st.Delay < 0, st.Until < 0:
		return errRange
	case live && (st.Until != 0 || st.Expired), !live && st.Expired && (st.Until != 0 || st.Delay != 0),
		!live && !st.Expired && (st.Until == 0 || st.Until < st.Delay):
		return errNeither
	}
	w := &worker{
		number: number, handle: st.Handle, name: st.Name, member: st.Member, client: st.Client, capacity: st.Capacity, settle: st.Settle,
		joined: st.Joined, delay: st.Delay, until: st.Until, leaving: st.Leaving, expired: st.Expired,
	}
	ld.workers = append(ld.workers, pending[worker, *wire.ShardWorkerState]{of: w, state: st, at: name})
	return nil
}

func (ld shardLoader) shard(rest string, value []byte) error {
	st := new(wire.ShardState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	name, number, ok := cutNumber(rest)
	switch {
	case !ok, number >= MaxShards:
		return errShape
	case (st.Worker == 0) != (st.Delay != 0), (st.Worker == 0) != (st.Fence == 0), st.Delay < 0, st.Moving && st.Worker == 0:
		return errNeither
	}
	sh := &shard{fence: st.Fence, delay: st.Delay, moving: st.Moving}
	ld.assigned = append(ld.assigned, assigned{sh, st.Worker, name, uint32(number)})
	return nil
}

// assigned is a shard that was read, with the number of its owner, its set and its own number.
type assigned struct {
	of     *shard
	worker uint64
	set    string
	number uint32
}

// linkWorkers gives sets their workers, which were read in the order of their numbers, and sessions theirs.
func (ld shardLoader) linkWorkers() error {
	m := ld.m
	for _, p := range ld.workers {
		w := p.of
		w.set = m.shardSets.byName[p.at]
		if w.set == nil {
			return fmt.Errorf("worker of %q: %w", p.at, errLoose)
		}
		if err := ld.linkWorker(w, p.state.Session); err != nil {
			return fmt.Errorf("worker %d of %q: %w", w.number, p.at, err)
		}
		w.set.workers = append(w.set.workers, w)
		m.shardSets.workers++
		if w.ends() != 0 {
			m.shardSets.times.Push(w)
		}
	}
	slices.SortFunc(ld.workers, func(a, b pending[worker, *wire.ShardWorkerState]) int { return cmp.Compare(a.of.joined, b.of.joined) })
	for i, p := range ld.workers {
		if i > 0 && ld.workers[i-1].of.joined == p.of.joined {
			return fmt.Errorf("worker %d of %q: %w", p.of.number, p.at, errFence)
		}
		if p.of.session != nil {
			p.of.session.workers.Push(p.of)
		}
	}
	return nil
}

func (ld shardLoader) linkWorker(w *worker, session []byte) error {
	m, set := ld.m, w.set
	switch {
	case !(sharding{m}).hasShards(), w.number > set.joins, w.joined > m.fence():
		return errRange
	case len(set.workers) >= MaxShardWorkers, m.shardSets.workers >= MaxAllShardWorkers+ReservedShardWorkers:
		return errRange
	case len(set.workers) > 0 && set.workers[len(set.workers)-1].number >= w.number:
		return errTwice
	case len(session) == 0:
		return nil
	}
	id, ok := wire.IDFrom(session)
	s := m.sessions[id]
	switch {
	case !ok:
		return errShape
	case s == nil:
		return errLoose
	case !s.claimable(w.joined) && set.find(s, w.handle) != nil:
		return errTwice
	}
	w.session = s
	return nil
}

// linkAssigned gives workers their shards.
func (ld shardLoader) linkAssigned() error {
	fences := make(map[uint64]bool)
	for _, p := range ld.assigned {
		if err := ld.assign(p, fences); err != nil {
			return fmt.Errorf("shard %d of %q: %w", p.number, p.set, err)
		}
	}
	return nil
}

func (ld shardLoader) assign(p assigned, fences map[uint64]bool) error {
	set, sh := ld.m.shardSets.byName[p.set], p.of
	if set == nil || p.number >= set.count {
		return errLoose
	}
	if p.worker == 0 {
		set.delayed++
		ld.m.delays.Push(restingShard{set, p.number, sh.delay})
		set.shards[p.number] = *sh
		return nil
	}
	at, found := slices.BinarySearchFunc(set.workers, p.worker, func(w *worker, number uint64) int { return cmp.Compare(w.number, number) })
	switch {
	case !found:
		return errLoose
	case sh.fence > ld.m.fence(), fences[sh.fence]:
		return errFence
	}
	fences[sh.fence] = true
	w := set.workers[at]
	sh.owner = w
	if w.shards++; sh.moving {
		w.moving++
	}
	set.shards[p.number] = *sh
	if sh.isClaimed() {
		w.session.sharded++
	}
	if w.leaving && w.isLive() && (!sh.isClaimed() || w.isLeft()) {
		return errRange // none could release it
	}
	return nil
}

// check checks that each set has a reason to exist, and finds those that the next entry plans.
func (ld shardLoader) check() error {
	m := ld.m
	for name, set := range m.shardSets.byName { // order: that of the heap is by name; else it shows in an error only
		busy, idle := set.delayed > 0, len(set.workers) == 0 && set.delayed == 0
		for _, w := range set.workers {
			busy = busy || w.shards > 0
			if idle = idle || w.isIdle(); w.moving > 0 && w.session == nil {
				return fmt.Errorf("worker %d of %q: %w", w.number, name, errRange)
			}
		}
		if idle || set.next != 0 && !busy || !(sharding{m}).hasShards() {
			return fmt.Errorf("set %q: %w", name, errRange)
		}
		if set.isDue(m.fences < maxFences) {
			m.shardSets.due.Push(set)
		}
	}
	return nil
}

// isDue reports whether shards can be granted, or taken from workers that have expired, at once.
func (set *shardSet) isDue(fences bool) bool {
	takes := slices.ContainsFunc(set.workers, (*worker).takes)
	ends := set.next != 0 || !slices.ContainsFunc(set.workers, func(w *worker) bool { return !w.expired })
	return slices.ContainsFunc(set.shards, func(sh shard) bool {
		switch {
		case sh.owner != nil && sh.owner.expired && ends:
			return true
		case sh.isFree():
			return fences && takes && set.next == 0 && sh.delay == 0
		}
		return fences && sh.owner.takes() && sh.owner.delay == 0 && !sh.isClaimed()
	})
}
