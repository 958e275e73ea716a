package grouptest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// shardResource is what the shards stand for: it refuses a second writer of a shard, and a fence that is not larger than all before.
type shardResource struct {
	t     *testing.T
	guard conclave.Guard

	mu     sync.Mutex
	writer map[int]string   // guarded by mu; of each shard that is being worked on
	names  map[int][]string // guarded by mu; the writers of each shard so far
	began  int              // guarded by mu
}

func newShardResource(t *testing.T) *shardResource {
	return &shardResource{t: t, writer: make(map[int]string), names: make(map[int][]string)}
}

// work is the work of a process of that name, which takes so long once its context has ended.
func (r *shardResource) work(name string, stopping func() time.Duration) func(context.Context, int, conclave.Fence) error {
	return func(ctx context.Context, shard int, f conclave.Fence) error {
		if err := r.guard.Check(fmt.Sprint(shard), f); err != nil {
			r.t.Errorf("shard %d of %s: %v", shard, name, err)
		}
		r.mu.Lock()
		if other, twice := r.writer[shard]; twice {
			r.t.Errorf("shard %d is written by %s and %s", shard, other, name)
		}
		r.writer[shard] = name
		r.names[shard] = append(r.names[shard], name)
		r.began++
		r.mu.Unlock()
		<-ctx.Done()
		if d := stopping(); d > 0 {
			Pass(d)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.writer, shard)
		return context.Cause(ctx)
	}
}

// begun returns how many works have begun.
func (r *shardResource) begun() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.began
}

func atOnce() time.Duration { return 0 }

// shardRuns is processes that work on a set.
type shardRuns struct {
	*shardResource
	running sync.WaitGroup
	options []conclave.ShardsOption
	count   int
}

func (r *shardRuns) set(n Access) *conclave.Shards { return n.Shards("orders", r.count, r.options...) }

// run starts a Run, which ends with ctx or, with an error, with the node.
func (r *shardRuns) run(ctx context.Context, name string, n Access) {
	r.running.Go(func() {
		err := r.set(n).Run(ctx, r.work(name, atOnce))
		if !errors.Is(err, context.Canceled) && !errors.Is(err, conclave.ErrClosed) {
			r.t.Errorf("%s: %v", name, err)
		}
	})
}

// await waits until each shard has an owner that keeps it, of so many workers.
func (r *shardRuns) await(n Access, workers int) {
	r.t.Helper()
	AwaitShards(r.t, r.set(n), func(i conclave.ShardsInfo) bool {
		return i.Owned == r.count && i.Moving == 0 && len(i.Workers) == workers
	})
}

// startShards has each node of a new group work on a set.
func startShards(t *testing.T, ctx context.Context, options ...conclave.ShardsOption) (*Group, *shardRuns) {
	g := Start(t, 3, ShortSessions)
	r := &shardRuns{shardResource: newShardResource(t), options: options, count: 9}
	for i, n := range g.Nodes {
		r.run(ctx, fmt.Sprint("member-", i), n)
	}
	r.await(g.Nodes[0], 3)
	for len(r.writers()) < r.count { // the owners learn of it
		Pass(time.Millisecond)
	}
	return g, r
}

// writers returns who works on each shard.
func (r *shardRuns) writers() map[int]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.writer)
}

// A node is killed: its shards go to the others when its session has ended and they have waited for it. The others' own do not move.
func TestShards_NodeKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	g, r := startShards(t, ctx, conclave.Settle(100*time.Millisecond))
	killed := (g.Leader() + 1) % 3
	other := g.Nodes[(killed+1)%3]
	g.Kill(killed)
	r.await(other, 2)
	shares := make(map[conclave.MemberID]int)
	for o, err := range r.set(other).Owners(Bounded(t)) {
		Must(t, err)
		shares[o.Node]++
	}
	if got := slices.Sorted(maps.Values(shares)); !slices.Equal(got, []int{4, 5}) {
		t.Errorf("shares %v", got)
	}
	cancel()
	r.running.Wait()
}

// A node is killed and starts again under its name: it gets its shards back, and none has moved. So it is with each in turn.
func TestShards_RollingRestart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	g, r := startShards(t, ctx, conclave.Settle(time.Hour))
	before := r.writers()
	first := make(map[int]int)
	r.mu.Lock()
	for shard, names := range r.names {
		first[shard] = len(names)
	}
	r.mu.Unlock()
	for i := range g.Nodes {
		if i%2 == 0 {
			g.Kill(i)
		} else {
			g.Close(i)
		}
		g.Start(i)
		r.run(ctx, fmt.Sprint("member-", i), g.Nodes[i])
		r.await(g.Nodes[i], 3)
		g.WantWorking()
	}
	r.mu.Lock()
	for shard, names := range r.names {
		for _, name := range names[first[shard]:] {
			if name != before[shard] {
				t.Errorf("shard %d of %s has moved: %v", shard, before[shard], names)
			}
		}
	}
	r.mu.Unlock()
	cancel()
	r.running.Wait()
}

// join has a process join the set and leave it, again and again.
func (r *shardRuns) join(ctx context.Context, name string, n Access, rng *rand.Rand) {
	for ctx.Err() == nil {
		staying, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(400))*time.Millisecond)
		slow := rng.IntN(3) == 0
		err := r.set(n).Run(staying, r.work(name, func() time.Duration {
			if slow {
				return 5 * time.Millisecond
			}
			return 0
		}))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			r.t.Errorf("%s: %v", name, err)
		}
	}
}

// Processes join and leave all the time, on all nodes and at a client, while calls are lost and repeated and leadership moves. A shard
// has one writer at most. Then those that stay share them all.
func TestShards_Stress(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, FaultyNetwork)
	client := Dial(t, &conclave.ClientConfig{SessionTTL: time.Hour}, g.Nodes...)
	ctx, stop := context.WithCancel(Bounded(t))
	defer stop()
	var moving sync.WaitGroup
	moving.Go(func() { moveLeadership(ctx, g, 200*time.Millisecond) })
	r := &shardRuns{shardResource: newShardResource(t), options: []conclave.ShardsOption{conclave.Grace(time.Hour)}, count: 20}
	all := []Access{g.Nodes[0], g.Nodes[1], g.Nodes[2], client}
	var joining sync.WaitGroup
	for i, n := range all {
		for j := range 2 {
			joining.Go(func() { r.join(ctx, fmt.Sprint(i, " ", j), n, rand.New(rand.NewPCG(uint64(i), uint64(j)))) })
		}
	}
	Pass(8 * time.Second)                                       // of load
	for ; r.begun() < 10*r.count; Pass(10 * time.Millisecond) { // fewer test too little
		Must(t, ctx.Err())
	}
	stop()
	joining.Wait()
	moving.Wait()
	AwaitShards(t, r.set(client), func(i conclave.ShardsInfo) bool { return i.Count == 0 })
	staying, leave := context.WithCancel(t.Context())
	for i, n := range all {
		r.run(staying, fmt.Sprint("last ", i), n)
	}
	r.await(client, 4)
	info, err := r.set(client).Info(Bounded(t))
	Must(t, err)
	for _, w := range info.Workers {
		if w.Shards != r.count/len(all) {
			t.Errorf("%+v", w)
		}
	}
	leave()
	r.running.Wait()
}

// A worker that has no shard, and whose node lags behind a change of the count, does not bring the former count back when the set
// has ended meanwhile.
func TestShards_ResizeWhileAway(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, MemoryNetwork)
	leader := g.Leader()
	away := (leader + 1) % 3
	works := func(ctx context.Context, _ int, _ conclave.Fence) error { <-ctx.Done(); return ctx.Err() }
	s := g.Nodes[leader].Shards("orders", 1)
	ended := make(chan error, 2)
	for i, member := range []int{leader, away} {
		go func() { ended <- g.Nodes[member].Shards("orders", 1).Run(t.Context(), works) }()
		AwaitShards(t, s, func(info conclave.ShardsInfo) bool { return info.Owned == 1 && len(info.Workers) == 1+i })
	}
	g.Net.Isolate(away)
	Must(t, g.Nodes[leader].Shards("orders", 2).Resize(Bounded(t)))
	WantError(t, <-ended, conclave.ErrLimitMismatch)
	AwaitShards(t, s, func(info conclave.ShardsInfo) bool { return info.Count == 0 })
	g.Net.Rejoin(away)
	select {
	case err := <-ended:
		WantError(t, err, conclave.ErrLimitMismatch)
	case <-Bounded(t).Done():
		t.Error("the worker works on with the former count")
	}
}
