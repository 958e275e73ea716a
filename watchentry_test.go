package conclave

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// One transaction that changes one key several times makes as many events, each
// with an index of its own.
func TestAWatchShowsEachChangeOfAnEntry(t *testing.T) {
	n := alone(t)
	k, ctx := n.KV(), within(t, 20*time.Second)
	entries, err := k.Txn(ctx, OpPut("a", []byte("1")), OpPut("a", []byte("2")), OpDelete("a"), OpPut("a", []byte("3")))
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, k, "end", "")
	first := entries[0].ModifyIndex
	want := []string{
		fmt.Sprintf("%d %q=%q %v", first, "a", "1", false),
		fmt.Sprintf("%d %q=%q %v", first+1, "a", "2", false),
		fmt.Sprintf("%d %q=%q %v", first+2, "a", "2", true),
		fmt.Sprintf("%d %q=%q %v", first+3, "a", "3", false),
	}
	if seen, err := collect(ctx, k, "", 0, "end"); err != nil || !slices.Equal(seen, want) {
		t.Fatalf("saw %q, want %q; %v", seen, want, err)
	}
}

// Changes that a snapshot stands for are not remembered. Who would have to see
// them is told so.
func TestASnapshotCompactsWatches(t *testing.T) {
	n := alone(t)
	k, ctx := n.KV(), within(t, 20*time.Second)
	before := mustPut(t, k, "a", "1")
	mustPut(t, k, "a", "2")
	if err := n.member.Look(ctx, n.feeds.restored); err != nil {
		t.Fatal(err)
	}
	_, err := collect(ctx, k, "", before.ModifyIndex, "none")
	wantError(t, err, ErrCompacted)
}
