package conclave_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// shardWorker is a Run under way, and what its works do.
type shardWorker struct {
	*grouptest.Waiting
	t     *testing.T
	works does

	began chan begun
	ended chan begun // with cause

	mu    sync.Mutex
	under map[int]conclave.Fence // guarded by mu; works under way
}

type begun struct {
	shard int
	fence conclave.Fence
	cause error
}

// does is what the works on some shards do, in place of waiting for the end of their context.
type does map[int]func(context.Context) error

// runShards starts a Run.
func runShards(t *testing.T, s *conclave.Shards) *shardWorker { return runShardsThat(t, s, nil) }

func runShardsThat(t *testing.T, s *conclave.Shards, works does) *shardWorker {
	ctx, cancel := context.WithCancel(t.Context())
	w := &shardWorker{
		Waiting: &grouptest.Waiting{Cancel: cancel, Err: make(chan error, 1)}, t: t,
		began: make(chan begun, 10_000), ended: make(chan begun, 10_000), under: make(map[int]conclave.Fence), works: works,
	}
	go func() { w.Err <- s.Run(ctx, w.work) }()
	return w
}

func (w *shardWorker) work(ctx context.Context, shard int, f conclave.Fence) error {
	if carried, ok := conclave.FenceFromContext(ctx); !ok || carried != f {
		w.t.Errorf("the context has the fence %v, want %v", carried, f)
	}
	w.mu.Lock()
	if _, twice := w.under[shard]; twice {
		w.t.Errorf("the work on shard %d is called twice", shard)
	}
	w.under[shard] = f
	w.mu.Unlock()
	w.began <- begun{shard, f, nil}
	defer func() {
		w.mu.Lock()
		delete(w.under, shard)
		w.mu.Unlock()
		w.ended <- begun{shard, f, context.Cause(ctx)}
	}()
	if does := w.works[shard]; does != nil {
		return does(ctx)
	}
	<-ctx.Done()
	return ctx.Err()
}

// next returns the next n of a channel, by shard.
func next(t *testing.T, from chan begun, n int) map[int]begun {
	t.Helper()
	all := make(map[int]begun)
	for range n {
		select {
		case b := <-from:
			all[b.shard] = b
		case <-time.After(5 * time.Minute):
			t.Fatalf("%d of %d came: %v", len(all), n, all)
		}
	}
	if len(all) != n {
		t.Fatalf("%d came for %d shards", n, len(all))
	}
	return all
}

// nothing wants nothing in a channel.
func nothing(t *testing.T, what string, from chan begun) {
	t.Helper()
	if len(from) > 0 {
		t.Fatalf("%s: %+v", what, <-from)
	}
}

// stop ends the Run and wants ctx's error.
func (w *shardWorker) stop() {
	w.t.Helper()
	w.Cancel()
	grouptest.WantError(w.t, <-w.Err, context.Canceled)
}

func shardsOf(of map[int]begun) []int { return slices.Sorted(maps.Keys(of)) }

// One process gets all shards, under ascending fences, and gives them away when it leaves.
func TestShards_AloneGetsAll(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		before := grouptest.MustLock(t, n.FencedLock("x"))
		s := n.Shards("orders", 8)
		w := runShards(t, s)
		first := next(t, w.began, 8)
		last := before
		for shard := range 8 {
			if f := first[shard].fence; f <= last {
				t.Errorf("shard %d has fence %v after %v", shard, f, last)
			} else {
				last = f
			}
		}
		owners, err := grouptest.Collect(s.Owners(t.Context()))
		grouptest.Must(t, err)
		for i, o := range owners {
			if o.Shard != i || o.Fence != first[i].fence || o.Node != grouptest.ID(n) || o.Session != grouptest.OwnSession(t, n) || o.Moving {
				t.Errorf("owner of shard %d is %+v, want fence %v", i, o, first[i].fence)
			}
		}
		w.stop()
		for shard, e := range next(t, w.ended, 8) {
			if !errors.Is(e.cause, context.Canceled) {
				t.Errorf("the work on shard %d ended with %v", shard, e.cause)
			}
		}
		if info, err := s.Info(t.Context()); err != nil || info.Name != "orders" || info.Count != 0 || info.Workers != nil {
			t.Errorf("%+v, %v after the last worker has left", info, err)
		}
		w = runShards(t, s)
		for shard, b := range next(t, w.began, 8) {
			if b.fence <= last {
				t.Errorf("shard %d has fence %v, after %v", shard, b.fence, last)
			}
		}
		w.stop()
	})
}

// When a second worker joins, the surplus moves to it, and nothing else stops.
func TestShards_SurplusMoves(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Shards("orders", 9)
		a := runShards(t, s)
		before := next(t, a.began, 9)
		b := runShards(t, s)
		moved, at := next(t, a.ended, 4), next(t, b.began, 4)
		if !slices.Equal(shardsOf(moved), shardsOf(at)) {
			t.Errorf("%v ended and %v began", shardsOf(moved), shardsOf(at))
		}
		for shard, m := range moved {
			if m.cause != conclave.ErrShardMoved { //nolint:errorlint // as it is
				t.Errorf("the work on shard %d ended with %v", shard, m.cause)
			}
			if at[shard].fence <= before[shard].fence {
				t.Errorf("shard %d: fence %v after %v", shard, at[shard].fence, before[shard].fence)
			}
		}
		nothing(t, "ended", a.ended)
		nothing(t, "began", a.began)
		b.stop()
		back := next(t, a.began, 4)
		if !slices.Equal(shardsOf(back), shardsOf(moved)) {
			t.Errorf("%v came back, want %v", shardsOf(back), shardsOf(moved))
		}
		nothing(t, "ended", a.ended)
		a.stop()
	})
}
