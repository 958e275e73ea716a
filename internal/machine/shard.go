package machine

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// shardSet is a number of shards, each of which is assigned to one worker at a time. It exists as long as it has workers.
type shardSet struct {
	name       string
	count      uint32 // of shards
	next       uint32 // the count that it changes to; 0: none
	generation uint64 // index of the entry at whose end it got its count
	joins      uint64 // workers so far
	workers    []*worker
	shards     []shard
	delayed    int // shards under a lock-delay
	changed    uint64
	at         int // position in shardSets.due
	slot       ordered.Slot
}

// shard is a part of the work of a set.
type shard struct {
	owner  *worker
	fence  uint64 // of its last grant to the owner
	delay  int64  // without an owner: until the end of a lock-delay; 0: none
	moving bool   // the owner is to release it
}

// worker is a handle of a session that shards of a set are assigned to. When its session has ended, its shards wait for one of
// the same name.
type worker struct {
	set      *shardSet
	number   uint64 // in the order of joining
	session  *session
	handle   uint64
	name     string
	member   uint64
	client   bool
	capacity uint32
	settle   int64
	joined   uint64 // a fence: shards under smaller ones are not granted to it yet
	delay    int64  // of a lock-delay: what it has is not granted before; 0: none
	until    int64  // without a session: what it has goes to others then; 0: it does already
	leaving  bool
	expired  bool
	shards   int // that it owns
	moving   int // of those, the ones that are flagged
	at       int // position in shardSets.times

	inSession ordered.Link[worker]
}

// isLive reports whether the worker's session has not ended.
func (w *worker) isLive() bool { return w.session != nil && !w.session.dead() }

// isDeserted reports whether the process of a live worker has ended, and its session, which has no TTL, lives on. It keeps what it has, as such a
// session keeps its locks.
func (w *worker) isDeserted() bool {
	return !w.session.standalone && (w.session.incarnation == nil || w.isLeft())
}

// isLeft reports whether the session was attached to another process since the worker has joined.
func (w *worker) isLeft() bool { return w.session.claimable(w.joined) }

// takes reports whether shards can be assigned to the worker.
func (w *worker) takes() bool { return w.isLive() && !w.leaving && !w.isDeserted() }

// waits reports whether the shards of an ended worker wait for another one.
func (w *worker) waits() bool { return !w.isLive() && !w.expired }

// isIdle reports that there is no reason for the worker to exist.
func (w *worker) isIdle() bool {
	return w.shards == 0 && (w.leaving || w.session == nil || w.isLeft())
}

// ends is when the worker's lock-delay ends, or what it has goes to others.
func (w *worker) ends() int64 {
	if w.session != nil {
		return w.delay
	}
	return w.until
}

// isClaimed reports whether the owner of the shard may work on it.
func (sh *shard) isClaimed() bool {
	return sh.owner != nil && sh.owner.isLive() && sh.fence > sh.owner.joined
}

// isFree reports whether nothing but a lock-delay is in the way of a grant.
func (sh *shard) isFree() bool { return sh.owner == nil || sh.owner.expired }

// find returns the worker that is the handle of the session, or nil. That of an earlier process of an attached session is none of this one,
// whose handles may have the same numbers.
func (set *shardSet) find(s *session, handle uint64) *worker {
	if set == nil {
		return nil
	}
	for _, w := range set.workers {
		if w.session == s && w.handle == handle && !w.isLeft() {
			return w
		}
	}
	return nil
}

// hasLive reports whether a worker's session has not ended.
func (set *shardSet) hasLive() bool {
	for _, w := range set.workers {
		if w.isLive() {
			return true
		}
	}
	return false
}

// wanted is the count that workers are to join with.
func (set *shardSet) wanted() uint32 {
	if set.next != 0 {
		return set.next
	}
	return set.count
}

// size is the number of shards that the set has, or is to have: the larger one.
func (set *shardSet) size() int { return int(max(set.count, set.next)) }

// shardSets holds the sets of shards.
type shardSets struct {
	byName  map[string]*shardSet
	index   ordered.Index[shardSet]
	all     int // shards
	workers int
	due     ordered.Heap[*shardSet] // to be planned
	times   ordered.Heap[*worker]   // those whose time comes
}

func newShardSets(v *ordered.Visits) shardSets {
	return shardSets{
		byName: make(map[string]*shardSet),
		index:  ordered.NewIndex(v, func(s *shardSet) string { return s.name }, func(s *shardSet) *ordered.Slot { return &s.slot }),
		due:    ordered.NewHeap(v, bySetName, func(s *shardSet) *int { return &s.at }),
		times:  ordered.NewHeap(v, byWorkerEnd, func(w *worker) *int { return &w.at }),
	}
}

func bySetName(a, b *shardSet) int { return cmp.Compare(a.name, b.name) }

func byWorkerEnd(a, b *worker) int {
	return cmp.Or(cmp.Compare(a.ends(), b.ends()), cmp.Compare(a.set.name, b.set.name), cmp.Compare(a.number, b.number))
}

func (ss *shardSets) add(set *shardSet) {
	ss.byName[set.name] = set
	ss.index.Add(set)
	ss.all += set.size()
}

func (ss *shardSets) remove(set *shardSet) {
	delete(ss.byName, set.name)
	ss.index.Remove(set)
	ss.all -= set.size()
}

// restingShard is a shard under a lock-delay.
type restingShard struct {
	set    *shardSet
	number uint32
	until  int64
}

func (r restingShard) ends() int64 { return r.until }

func (r restingShard) place() place {
	return place{kind: shardKind, name: r.set.name, fence: uint64(r.number)}
}

// over ends the lock-delay.
func (r restingShard) over(m *Machine) {
	r.set.shards[r.number].delay = 0
	r.set.delayed--
	m.dirty.drop(shardKey(r.set.name, r.number))
	sharding{m}.touch(r.set)
}

func shardKey(set string, number uint32) string { return numbered(shardKind, set, uint64(number)) }

func (set *shardSet) key() string { return string(shardSetKind) + set.name }

func (w *worker) key() string { return numbered(shardWorkerKind, w.set.name, w.number) }

func (set *shardSet) state() proto.Message {
	return &wire.ShardSetState{Count: set.count, Next: set.next, Generation: set.generation, Joins: set.joins}
}

func (w *worker) state() proto.Message {
	st := &wire.ShardWorkerState{
		Handle: w.handle, Name: w.name, Member: w.member, Client: w.client, Capacity: w.capacity, Settle: w.settle,
		Joined: w.joined, Delay: w.delay, Until: w.until, Leaving: w.leaving, Expired: w.expired,
	}
	if w.session != nil {
		st.Session = w.session.id[:]
	}
	return st
}

func (sh *shard) state() proto.Message {
	st := &wire.ShardState{Fence: sh.fence, Moving: sh.moving, Delay: sh.delay}
	if sh.owner != nil {
		st.Worker = sh.owner.number
	}
	return st
}
