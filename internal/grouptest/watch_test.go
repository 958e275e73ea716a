package grouptest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
)

// Watches on all members yield the same events in the same order, and one that starts
// in the middle yields the rest.
func TestWatch_SameOnAllMembers(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	ctx := Bounded(t)
	seen := make([][]string, len(g.Nodes))
	var watchers, writers sync.WaitGroup
	for i, n := range g.Nodes {
		watchers.Go(func() {
			var err error
			if seen[i], err = WatchUntil(ctx, n.KV(), "w/", 0, "w/end"); err != nil {
				t.Error(err)
			}
		})
		writers.Go(func() {
			for j := range 30 {
				key := fmt.Sprintf("w/%d", j%4)
				MustPut(t, n.KV(), key, fmt.Sprint(i, j))
				MustPut(t, n.KV(), "other", fmt.Sprint(i, j))
				if j%5 == 0 {
					if _, err := n.KV().Txn(ctx, conclave.OpDeletePrefix("w/"), conclave.OpPut(key, nil)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	writers.Wait()
	middle := MustPut(t, g.Nodes[0].KV(), "w/middle", "")
	MustPut(t, g.Nodes[0].KV(), "w/last", "")
	MustPut(t, g.Nodes[1].KV(), "w/end", "")
	watchers.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if !slices.Equal(seen[0], seen[1]) || !slices.Equal(seen[0], seen[2]) {
		t.Fatalf("the watches differ:\n%q\n%q\n%q", seen[0], seen[1], seen[2])
	}
	if len(seen[0]) < 3*(30+6) {
		t.Fatalf("%d events", len(seen[0]))
	}
	rest, err := WatchUntil(ctx, g.Nodes[2].KV(), "w/", middle.ModifyIndex, "w/end")
	if err != nil || len(rest) != 1 || rest[0] != seen[0][len(seen[0])-1] {
		t.Fatal(rest, err)
	}
}

// Changes before the node's start, and those that a snapshot skips, are compacted.
func TestWatch_Compacted(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, ShortLog, MemoryNetwork)
	away := (g.Leader() + 1) % 3
	k, other := g.Nodes[away].KV(), g.Nodes[(away+1)%3].KV()
	ctx := Bounded(t)
	before := MustPut(t, k, "a", "1")
	ended := make(chan error, 1)
	go func() {
		_, err := WatchUntil(ctx, k, "", before.ModifyIndex, "none")
		ended <- err
	}()
	g.Disconnect(away)
	missed := MustPut(t, other, "a", "2")
	Busy(t, g.Nodes[(away+1)%3], 150)
	g.Net.Rejoin(away)
	WantError(t, <-ended, conclave.ErrCompacted)
	g.WantInstalled(away, 1)
	index, err := k.Index(ctx)
	if err != nil || index != missed.ModifyIndex {
		t.Fatal(index, err)
	}
	next := MustPut(t, other, "a", "3")
	if e := NextEvent(t, k, "", index); e.Index != next.ModifyIndex {
		t.Fatalf("%+v, not %d", e, next.ModifyIndex)
	}

	g.Kill(away)
	g.Start(away)
	g.AwaitApplied(away)
	k = g.Nodes[away].KV()
	WantWatchEnd(t, ctx, k, before.ModifyIndex, conclave.ErrCompacted)
	last := MustPut(t, other, "a", "4")
	if e := NextEvent(t, k, "", next.ModifyIndex); e.Index != last.ModifyIndex {
		t.Fatalf("%+v, not %d", e, last.ModifyIndex)
	}
}
