package conclave

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster"
)

// collect takes events until one of that key comes.
func collect(ctx context.Context, k *KV, prefix string, after uint64, until string) (seen []string, err error) {
	for e, err := range k.Watch(ctx, prefix, after) {
		if err != nil {
			return seen, err
		}
		if e.Entry.Key == until {
			return seen, nil
		}
		seen = append(seen, fmt.Sprintf("%d %q=%q %v", e.Index, e.Entry.Key, e.Entry.Value, e.Deleted))
	}
	return seen, errors.New("the watch ended without an error")
}

// Watchers on all members see the same changes in the same order, whoever makes
// them, and one that begins in the middle sees the rest.
func TestWatchSeesAll(t *testing.T) {
	g := group(t, 3, nil)
	ctx := within(t, 60*time.Second)
	seen := make([][]string, len(g.nodes))
	var watchers, writers sync.WaitGroup
	for i, n := range g.nodes {
		watchers.Go(func() {
			var err error
			if seen[i], err = collect(ctx, n.KV(), "w/", 0, "w/end"); err != nil {
				t.Error(err)
			}
		})
		writers.Go(func() {
			for j := range 30 {
				key := fmt.Sprintf("w/%d", j%4)
				mustPut(t, n.KV(), key, fmt.Sprint(i, j))
				mustPut(t, n.KV(), "other", fmt.Sprint(i, j))
				if j%5 == 0 {
					if _, err := n.KV().Txn(ctx, OpDeletePrefix("w/"), OpPut(key, nil)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	writers.Wait()
	middle := mustPut(t, g.nodes[0].KV(), "w/middle", "")
	mustPut(t, g.nodes[0].KV(), "w/last", "")
	mustPut(t, g.nodes[1].KV(), "w/end", "")
	watchers.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if !slices.Equal(seen[0], seen[1]) || !slices.Equal(seen[0], seen[2]) {
		t.Fatalf("the watchers differ:\n%q\n%q\n%q", seen[0], seen[1], seen[2])
	}
	if len(seen[0]) < 3*(30+6) {
		t.Fatalf("%d events", len(seen[0]))
	}
	rest, err := collect(ctx, g.nodes[2].KV(), "w/", middle.ModifyIndex, "w/end")
	if err != nil || len(rest) != 1 || rest[0] != seen[0][len(seen[0])-1] {
		t.Fatal(rest, err)
	}
}

// Index, then List, then Watch misses nothing: what is built from them is what
// there is, while others write.
func TestWatchFromIndex(t *testing.T) {
	n := alone(t)
	k, ctx := n.KV(), within(t, 30*time.Second)
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range 200 {
			mustPut(t, k, fmt.Sprint("k", i%10), fmt.Sprint(i))
			if i%3 == 0 {
				if err := k.Delete(ctx, fmt.Sprint("k", i%7)); err != nil {
					t.Error(err)
				}
			}
		}
		mustPut(t, k, "z", "")
	})
	defer writing.Wait() // wherever this ends: it tells the test when it fails
	index, err := k.Index(ctx)
	if err != nil {
		t.Fatal(err)
	}
	list, err := k.List(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	built := make(map[string]Entry)
	for _, e := range list {
		built[e.Key] = e
	}
	for e, err := range k.Watch(ctx, "", index) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Entry.Key == "z" {
			break
		}
		if built[e.Entry.Key] = e.Entry; e.Deleted {
			delete(built, e.Entry.Key)
		}
	}
	writing.Wait()
	if list, err = k.List(ctx, "k"); err != nil || len(list) != len(built) {
		t.Fatalf("%d entries, not %d, %v", len(built), len(list), err)
	}
	for _, e := range list {
		wantEntry(t, built[e.Key], e)
	}
}

// wantEnd fails unless the watch ends with an error, as the last that it yields.
func wantEnd(t *testing.T, k *KV, ctx context.Context, after uint64, want error) {
	t.Helper()
	var last error
	for _, err := range k.Watch(ctx, "", after) {
		if last != nil {
			t.Fatalf("something came after %v", last)
		}
		last = err
	}
	wantError(t, last, want)
}

func TestWatchEnds(t *testing.T) {
	n := alone(t)
	k := n.KV()
	e := mustPut(t, k, "a", "")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("enough")
	for event, err := range k.Watch(ctx, "", 0) {
		if err == nil {
			wantEntry(t, event.Entry, e)
			cancel(why)
			continue
		}
		wantError(t, err, context.Canceled)
		wantError(t, err, why)
	}
	wantEnd(t, k, ctx, 1<<60, context.Canceled) // the future, and nobody to wait for it

	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		wantEnd(t, k, t.Context(), 0, ErrClosed) // what has happened comes first
	}()
	n.Close(t.Context())
	<-waiting
	wantEnd(t, k, t.Context(), 1<<60, ErrClosed)
}

// Changes from before the node's start are not remembered, nor those that a
// snapshot stands for.
func TestWatchCompacted(t *testing.T) {
	var wires [3]cable
	g := group(t, 3, func(i int, c *Config, h *cluster.Seams) {
		shortLog(i, c, h)
		c.Dial = wires[i].dial
		c.Listener = listener{c.Listener, &wires[i]}
	})
	away := (g.leader() + 1) % 3
	k, other := g.nodes[away].KV(), g.nodes[(away+1)%3].KV()
	ctx := within(t, 60*time.Second)
	before := mustPut(t, k, "a", "1")
	ended := make(chan error, 1)
	go func() {
		_, err := collect(ctx, k, "", before.ModifyIndex, "none")
		ended <- err
	}()
	wires[away].unplug()
	missed := mustPut(t, other, "a", "2")
	busy(t, g.nodes[(away+1)%3], 150)
	wires[away].plug()
	wantError(t, <-ended, ErrCompacted)
	g.wantInstalled(away, 1)
	index, err := k.Index(ctx)
	if err != nil || index != missed.ModifyIndex {
		t.Fatal(index, err)
	}
	next := mustPut(t, other, "a", "3")
	if e := nextEvent(t, k, "", index); e.Index != next.ModifyIndex {
		t.Fatalf("%+v, not %d", e, next.ModifyIndex)
	}

	g.kill(away)
	g.start(away)
	g.awaitApplied(away)
	k = g.nodes[away].KV()
	wantEnd(t, k, ctx, before.ModifyIndex, ErrCompacted)
	last := mustPut(t, other, "a", "4")
	if e := nextEvent(t, k, "", next.ModifyIndex); e.Index != last.ModifyIndex {
		t.Fatalf("%+v, not %d", e, last.ModifyIndex)
	}
}

// A loop body that is too slow is told so, and nothing grows meanwhile.
func TestWatchTooSlow(t *testing.T) {
	n := alone(t)
	n.feeds.keys.mu.Lock()
	n.feeds.keys.maxItems = 100
	n.feeds.keys.mu.Unlock()
	k := n.KV()
	mustPut(t, k, "a", "")
	yielded := 0
	for _, err := range k.Watch(within(t, 30*time.Second), "", 0) {
		if err != nil {
			wantError(t, err, ErrCompacted)
			break
		}
		if yielded++; yielded == 1 {
			for i := range 300 {
				mustPut(t, k, "a", fmt.Sprint(i))
			}
		}
	}
	if yielded > feedPortion {
		t.Fatalf("%d events came before the gap was told", yielded)
	}
}
