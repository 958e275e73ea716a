package conclave

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// ShardOwner is the owner of a shard. With Fence 0 the shard has none: it is between two owners, in a lock-delay, waits for the
// return of a process that has ended ([Settle]), or no process works on the set. Then only Shard and, perhaps, Worker and Reserved
// are set.
type ShardOwner struct {
	Shard int
	// Fence is that of the ownership. A router sends it along, and an owner refuses a larger one than its own: it is not the
	// owner any more.
	Fence   Fence
	Session SessionID
	Name    string   // of the session
	Node    MemberID // of its process
	Client  bool     // Node is a client; see [Dial]
	Moving  bool     // the owner is to end its work, as the shard is to move
	// Worker is the Number of the worker that the shard is assigned to, as in [ShardWorkerInfo]: of its owner, or with Fence 0 of the
	// one that it waits for. 0: it is assigned to none.
	Worker uint64
	// Reserved is the name of the session whose process the shard waits for: until that is back, or until its lock-delay has passed.
	// It is empty if the session has no name; whether the shard waits is in Worker.
	Reserved string
}

// Owner returns the owner of a shard, on any process. It is linearizable and blocks until a quorum has confirmed that this node is
// up to date, unless [Stale] is given, as a router does. The shard may have moved by the time that it returns.
//
// It reads the whole set; a router that asks often uses [Shards.Watch].
//
// ErrLimitMismatch: the set has another count of shards. ErrInvalid and ErrTooLarge: the name, the count, an option or the shard is
// invalid. ErrUnavailable: ctx was done before a quorum was reachable. ErrBusy: too many reads are under way. ErrClosed.
func (s *Shards) Owner(ctx context.Context, shard int, opts ...ReadOption) (ShardOwner, error) {
	if err := s.validShard(shard); err != nil {
		return ShardOwner{}, fault("owner", s.name, err)
	}
	owners, err := s.owners(ctx, opts)
	if err != nil {
		return ShardOwner{}, fault("owner", s.name, err)
	}
	return owners[shard], nil
}

// validShard checks the number of a shard, and the handle.
func (s *Shards) validShard(shard int) error {
	if s.bad == nil && (shard < 0 || shard >= s.count) {
		return fmt.Errorf("%w shard: want 0 to %d, got %d", ErrInvalid, s.count-1, shard)
	}
	return s.bad
}

// Owners yields the owners of all shards of the set at one point in time, in the order of the shards. It reads them when the loop
// begins, and blocks and fails as [Shards.Owner] does: then it yields an error alone.
func (s *Shards) Owners(ctx context.Context, opts ...ReadOption) iter.Seq2[ShardOwner, error] {
	return func(yield func(ShardOwner, error) bool) {
		owners, err := s.owners(ctx, opts)
		if err != nil {
			yield(ShardOwner{}, fault("owners", s.name, err))
			return
		}
		for _, o := range owners {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (s *Shards) owners(ctx context.Context, opts []ReadOption) ([]ShardOwner, error) {
	v, err := s.view(ctx, opts)
	if err != nil {
		return nil, err
	}
	return s.ownersIn(v)
}

// view returns the state of the set; nil: there is none.
func (s *Shards) view(ctx context.Context, opts []ReadOption) (*machine.ShardsView, error) {
	if s.bad != nil {
		return nil, s.bad
	}
	return client.Ask[*machine.ShardsView](ctx, s.group.client, machine.ShardsQuery{Name: s.name}, readOptions(opts))
}

// ownersIn returns the owners by shard, unless the set has another count. While it changes to that of this handle, no shard has
// an owner.
func (s *Shards) ownersIn(v *machine.ShardsView) ([]ShardOwner, error) {
	count := uint32(s.count)
	if v != nil && v.Count != count && v.Next != count {
		return nil, s.otherCount(countOf(v))
	}
	owners := make([]ShardOwner, s.count)
	for i := range owners {
		owners[i].Shard = i
	}
	if v == nil || v.Count != count {
		return owners, nil
	}
	workers := make(map[uint64]machine.ShardWorkerView, len(v.Workers))
	for _, w := range v.Workers {
		workers[w.Number] = w
	}
	for i, sh := range v.Shards {
		switch {
		case sh.Fence != 0:
			owners[i] = ownedBy(workers[sh.Worker], i, sh.Fence, sh.Moving)
		case sh.Worker != 0:
			owners[i].Worker, owners[i].Reserved = sh.Worker, workers[sh.Worker].Name
		}
	}
	return owners, nil
}

// countOf is the count with which workers can join.
func countOf(v *machine.ShardsView) uint32 {
	if v.Next != 0 {
		return v.Next
	}
	return v.Count
}

func ownedBy(w machine.ShardWorkerView, shard int, fence uint64, moving bool) ShardOwner {
	return ShardOwner{
		Shard: shard, Fence: Fence(fence), Session: SessionID(w.Session), Name: w.Name,
		Node: MemberID(w.Member), Client: w.Client, Moving: moving, Worker: w.Number,
	}
}

// Watch yields the owner of each shard, in the order of the shards and with Fence 0 where there is none, and then each change: another
// owner, none, or that the shard is to move.
//
// Changes of one shard are yielded in order. A watcher that is slower than the changes, or whose node received a snapshot
// because it lagged too far, misses some, but always sees the latest.
//
// The sequence ends with an error: ctx's, with ErrUnavailable if no quorum was reachable before it was done; ErrLimitMismatch, when
// the set has, or gets, another count; ErrBusy with too many reads, or streams of a client, under way; ErrClosed; or ErrInvalid or
// ErrTooLarge as with Owner. Watch has no goroutine and does not poll.
func (s *Shards) Watch(ctx context.Context) iter.Seq2[ShardOwner, error] {
	return func(yield func(ShardOwner, error) bool) {
		err := s.bad
		if err == nil {
			w := shardWatch{shards: s, yield: func(o ShardOwner) bool { return yield(o, nil) }}
			err = w.run(ctx)
		}
		if err != nil {
			yield(ShardOwner{}, fault("watch", s.name, err))
		}
	}
}

// shardWatch is one Watch.
type shardWatch struct {
	shards *Shards
	yield  func(ShardOwner) bool

	known   []ShardOwner // by shard, as yielded; nil: nothing was
	workers map[shardWorker]machine.ShardWorkerView
}

// shardWorker identifies a worker in changes.
type shardWorker struct {
	session wire.ID
	handle  uint64
}

// run returns nil when yield has returned false.
func (w *shardWatch) run(ctx context.Context) error {
	for {
		var (
			more   bool
			failed error
			again  bool // the change is to a worker that has joined since
		)
		err := w.shards.group.client.ObserveShards(ctx, w.shards.name, func(u client.ShardsUpdate) bool {
			switch {
			case u.Change == nil:
				more, failed = w.viewed(u.View)
			default:
				more, again = w.changed(u.Change)
			}
			return more && failed == nil && !again
		})
		switch {
		case failed != nil:
			return failed
		case !again:
			return err
		}
	}
}

// viewed yields the owners, or those that differ from what was yielded before.
func (w *shardWatch) viewed(v *machine.ShardsView) (more bool, err error) {
	owners, err := w.shards.ownersIn(v)
	if err != nil {
		return false, err
	}
	w.workers = make(map[shardWorker]machine.ShardWorkerView)
	if v != nil {
		for _, o := range v.Workers {
			if !o.Left { // else it may have the number of another one's handle, and no changes
				w.workers[shardWorker{o.Session, o.Handle}] = o
			}
		}
	}
	before := w.known
	w.known = owners
	for i, o := range owners {
		if (before == nil || before[i] != o) && !w.yield(o) {
			return false, nil
		}
	}
	return true, nil
}

// changed yields a change of one shard. Where its owner has joined after the state was read, that is to be read again.
func (w *shardWatch) changed(c *fact.ShardChange) (more, again bool) {
	o := ShardOwner{Shard: int(c.Shard)}
	if o.Shard >= len(w.known) {
		return true, true // of another count
	}
	if c.Fence != 0 {
		by, known := w.workers[shardWorker{c.Session, c.Handle}]
		if !known {
			return true, true
		}
		o = ownedBy(by, o.Shard, c.Fence, c.Moving)
	}
	if w.known[o.Shard] == o {
		return true, false
	}
	w.known[o.Shard] = o
	return w.yield(o), false
}

// ShardsInfo describes a set of shards. For one on which no process works, only Name is set.
type ShardsInfo struct {
	Name       string
	Count      int    // of the shards
	Next       int    // the count that the set changes to; 0: it does not
	Generation uint64 // raft index of the entry since which it has its count
	Owned      int    // shards that have an owner
	Moving     int    // of those, the ones that are to move
	Waiting    int    // shards that wait for the return of a process that has ended, or are in a lock-delay
	// Workers has the processes that work on the set, in the order in which they joined: one for each Run under way, and those that
	// have ended and whose shards wait. It is nil in what [Group.ShardSets] lists.
	Workers []ShardWorkerInfo
}

// ShardWorkerInfo describes a process that works on a set of shards.
type ShardWorkerInfo struct {
	Number    uint64    // of the worker in its set; no other one of the set has the same
	Session   SessionID // zero: it has ended
	Name      string    // of the session
	Node      MemberID
	Client    bool // Node is a client; see [Dial]
	Live      bool // its session has not ended
	Leaving   bool // it gets no more shards, and releases those that it has
	Capacity  int
	Shards    int           // that are assigned to it: that it owns, that it is about to be granted, or that wait for its return
	Owned     int           // of those, the ones that it owns
	Moving    int           // of those that it owns, the ones that it is to release
	Remaining time.Duration // until those that wait go to others
}

// Info describes the set, whatever its count. It is linearizable, unless [Stale] is given, and blocks and fails as [FencedLock.Info] does.
func (s *Shards) Info(ctx context.Context, opts ...ReadOption) (ShardsInfo, error) {
	v, err := s.view(ctx, opts)
	switch {
	case err != nil:
		return ShardsInfo{}, fault("info", s.name, err)
	case v == nil:
		return ShardsInfo{Name: s.name}, nil
	}
	return shardsInfo(*v), nil
}

func shardsInfo(v machine.ShardsView) ShardsInfo {
	info := ShardsInfo{
		Name: v.Name, Count: int(v.Count), Next: int(v.Next), Generation: v.Generation,
		Owned: v.Owned, Moving: v.Moving, Waiting: v.Waiting,
	}
	owned, moving := make(map[uint64]int), make(map[uint64]int) // by number of the worker
	for _, sh := range v.Shards {
		if sh.Fence != 0 {
			owned[sh.Worker]++
		}
		if sh.Moving {
			moving[sh.Worker]++
		}
	}
	for _, w := range v.Workers {
		info.Workers = append(info.Workers, ShardWorkerInfo{
			Number: w.Number, Session: SessionID(w.Session), Name: w.Name, Node: MemberID(w.Member), Client: w.Client, Live: w.Live, Leaving: w.Leaving,
			Capacity: int(w.Capacity), Shards: w.Shards, Owned: owned[w.Number], Moving: moving[w.Number], Remaining: duration(w.Remaining),
		})
	}
	return info
}

// ShardSets lists the sets of shards of the group whose names begin with prefix, by name, without their workers. It reads pages, as
// [Group.Locks] does.
func (g *Group) ShardSets(ctx context.Context, prefix string, opts ...ListOption[string]) iter.Seq2[ShardsInfo, error] {
	l := listingOf(opts)
	if err := validPrefixes(prefix, l.after); err != nil {
		return refused[ShardsInfo]("list sets of shards", prefix, err)
	}
	return pages(ctx, g, "list sets of shards", prefix, l, func(after string) machine.Query {
		return machine.ShardSetsQuery{Prefix: prefix, After: after, Limit: pageSize}
	}, func(v machine.ShardsView) string { return v.Name }, shardsInfo)
}
