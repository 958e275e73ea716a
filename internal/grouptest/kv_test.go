package grouptest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// Concurrent increments by compare-and-swap are applied exactly once, although outcomes
// are lost and commands repeated.
func TestKV_CounterExactlyOnce(t *testing.T) {
	t.Parallel()
	const each = 25
	g := Start(t, 3, Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { FaultyForwards(s, 3) }))
	ctx := Bounded(t)
	var wg sync.WaitGroup
	for _, n := range g.Nodes {
		wg.Go(func() {
			for done := 0; done < each; {
				ok, err := count(t, n.KV(), "counter")
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					done++
				}
			}
		})
	}
	wg.Wait()
	e, err := g.Nodes[0].KV().Get(ctx, "counter")
	if err != nil || string(e.Value) != fmt.Sprint(each*len(g.Nodes)) {
		t.Fatalf("%s %v", e.Value, err)
	}
}

// Writes are applied exactly once although the registration of their process expires.
func TestKV_CounterRegistrationExpired(t *testing.T) {
	t.Parallel()
	const callers, each = 8, 20
	g := Start(t, 1)
	n := g.Nodes[0]
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for done := 0; done < each; {
				ok, err := count(t, n.KV(), "counter")
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					done++
				}
			}
		})
	}
	for range 10 {
		if err := g.Deregister(0); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if e := MustGet(t, n.KV(), "counter"); string(e.Value) != fmt.Sprint(callers*each) {
		t.Fatalf("counted to %s", e.Value)
	}
}

// count tries once to increment a counter.
func count(t *testing.T, k *conclave.KV, key string) (bool, error) {
	ctx := Bounded(t)
	e, err := k.Get(ctx, key)
	if err != nil && !errors.Is(err, conclave.ErrKeyNotFound) {
		return false, err
	}
	n, _ := strconv.Atoi(string(e.Value)) // 0 without a key
	_, ok, err := k.CompareAndSwap(ctx, key, e.ModifyIndex, strconv.AppendInt(nil, int64(n+1), 10))
	return ok, err
}

// Stale reads need no quorum; others wait for one.
func TestKV_StaleReadWithoutQuorum(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	k := g.Nodes[0].KV()
	put := MustPut(t, g.Nodes[1].KV(), "a", "1")
	WantEntry(t, MustGet(t, k, "a"), put)
	g.Kill(1)
	g.Kill(2)
	WantEntry(t, MustGet(t, k, "a", conclave.Stale()), put)
	ctx := Bounded(t)
	if list, err := k.List(ctx, "", conclave.Stale()); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if keys, err := k.Keys(ctx, "", "", conclave.Stale()); err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	if index, err := k.Index(ctx, conclave.Stale()); err != nil || index != put.ModifyIndex {
		t.Fatal(index, err)
	}
	short := Within(t, 300*time.Millisecond)
	_, err := k.Get(short, "a")
	WantError(t, err, conclave.ErrUnavailable)
	WantError(t, err, short.Err())
}

// Keys persist across restarts and snapshots.
func TestKV_RestartAndSnapshot(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, ShortLog)
	k := g.Nodes[0].KV()
	put := MustPut(t, k, "a", "1", conclave.WithFlags(9))
	away := 2
	g.Kill(away)
	Busy(t, g.Nodes[0], 150)
	deleted := MustPut(t, k, "deleted", "")
	if err := k.Delete(Bounded(t), "deleted"); err != nil {
		t.Fatal(err)
	}
	g.Start(away)
	g.AwaitApplied(away)
	g.WantInstalled(away, 1)
	WantEntry(t, MustGet(t, g.Nodes[away].KV(), "a", conclave.Stale()), put)
	g.KillAll()
	g.Start(g.All()...)
	WantEntry(t, MustGet(t, g.Nodes[away].KV(), "a"), put)
	if next := MustPut(t, g.Nodes[1].KV(), "deleted", ""); next.CreateIndex <= deleted.ModifyIndex {
		t.Fatalf("index %d after %d", next.CreateIndex, deleted.ModifyIndex)
	}
}
