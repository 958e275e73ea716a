package machine

import (
	"github.com/conclave-go/conclave/internal/wire"
)

// ShardsView is a set of shards at the applied index.
type ShardsView struct {
	Name       string
	Count      uint32
	Next       uint32 `json:",omitempty"` // the count that it changes to
	Generation uint64 // index of the entry with which it got its count
	Owned      int    // shards that a worker works on, or may
	Moving     int    // of those, the ones that their workers are to release
	Waiting    int    // shards that wait for a worker that has ended, or for a lock-delay
	Takers     int    // workers that shards are assigned to

	Workers []ShardWorkerView `json:",omitempty"` // in the order of joining
	Shards  []ShardView       `json:",omitempty"` // in their order
}

// ShardWorkerView is a worker of a set of shards.
type ShardWorkerView struct {
	Number   uint64
	Name     string // of its session
	Session  wire.ID
	Handle   uint64
	Member   uint64
	Client   bool // Member is a client's ID
	Live     bool // its session has not ended
	Leaving  bool
	Left     bool `json:",omitempty"` // by its process: its session was attached to another since, whose handles may have the same numbers
	Capacity uint32
	Shards   int // that are assigned to it
	// Remaining is for how long the shards of one that has ended wait for another of its name.
	Remaining int64 `json:",omitempty"`
}

// ShardView is a shard.
type ShardView struct {
	Worker uint64 `json:",omitempty"` // number of the one that it is assigned to; 0: none
	Fence  uint64 `json:",omitempty"` // 0: it is not granted
	Moving bool   `json:",omitempty"`
}

// ShardsQuery asks for a set of shards. The answer is a *ShardsView: nil if it has no workers.
type ShardsQuery struct{ Name string }

// Begin implements [Query].
func (q ShardsQuery) Begin(m *Machine) func() any {
	set := m.shardSets.byName[q.Name]
	if set == nil {
		return answered((*ShardsView)(nil))
	}
	v := sharding{m}.view(set)
	for _, w := range set.workers {
		m.visits.Count()
		v.Workers = append(v.Workers, sharding{m}.viewWorker(w))
	}
	v.Shards = make([]ShardView, len(set.shards))
	for i := range set.shards {
		m.visits.Count()
		v.Shards[i] = set.shards[i].view()
	}
	return answered(&v)
}

// ShardSetsQuery asks for sets of shards, without their workers and shards. The answer is a []ShardsView by name.
type ShardSetsQuery struct {
	Prefix, After string
	Limit         int
}

// Begin implements [Query].
func (q ShardSetsQuery) Begin(m *Machine) func() any {
	var views []ShardsView
	p := m.newPage(q.Limit)
	m.shardSets.index.Page(&shardSet{name: max(q.Prefix, q.After)}, q.Prefix, q.After, func(set *shardSet) bool {
		views = append(views, sharding{m}.view(set))
		p.visited -= len(set.shards) + len(set.workers)
		return p.add(len(set.name))
	})
	return answered(views)
}

// view describes a set without its workers and shards.
func (x sharding) view(set *shardSet) ShardsView {
	v := ShardsView{Name: set.name, Count: set.count, Next: set.next, Generation: set.generation}
	for _, w := range set.workers {
		x.visits.Count()
		if w.takes() {
			v.Takers++
		}
	}
	for i := range set.shards {
		x.visits.Count()
		switch sh := &set.shards[i]; {
		case sh.isClaimed():
			if v.Owned++; sh.isMoving() {
				v.Moving++
			}
		case sh.owner != nil && !sh.owner.expired, sh.delay != 0:
			v.Waiting++
		}
	}
	return v
}

func (x sharding) viewWorker(w *worker) ShardWorkerView {
	v := ShardWorkerView{
		Number: w.number, Name: w.name, Handle: w.handle, Member: w.member, Client: w.client, Live: w.isLive(), Leaving: w.leaving,
		Capacity: w.capacity, Shards: w.shards,
	}
	if w.isLive() {
		v.Session, v.Left = w.session.id, w.isLeft()
	} else if w.until != 0 {
		v.Remaining = max(0, w.until-x.now)
	}
	return v
}

// isMoving reports whether the owner of a claimed shard is to release it.
func (sh *shard) isMoving() bool { return sh.moving || sh.owner.leaving }

func (sh *shard) view() (v ShardView) {
	if sh.owner == nil || sh.owner.expired {
		return v
	}
	if v.Worker = sh.owner.number; sh.isClaimed() {
		v.Fence, v.Moving = sh.fence, sh.isMoving()
	}
	return v
}
