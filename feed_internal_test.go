package conclave

import (
	"fmt"
	"testing"
	"time"
)

// A snapshot skips changes: a watch that would have to show them gets ErrCompacted.
func TestWatch_CompactedBySnapshot(t *testing.T) {
	n := alone(t)
	k, ctx := n.KV(), within(t, 20*time.Second)
	before := mustPut(t, k, "a", "1")
	mustPut(t, k, "a", "2")
	if err := n.member.Look(ctx, n.feeds.restored); err != nil {
		t.Fatal(err)
	}
	for _, err := range k.Watch(ctx, "", before.ModifyIndex) {
		wantError(t, err, ErrCompacted)
	}
}

// A watch that is too slow gets ErrCompacted, and nothing grows meanwhile.
func TestWatch_TooSlow(t *testing.T) {
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
		t.Fatalf("%d events before ErrCompacted", yielded)
	}
}

// An observer that is too slow misses changes, and gets the last one.
func TestObserve_TooSlow(t *testing.T) {
	n := alone(t)
	n.feeds.leaders.mu.Lock()
	n.feeds.leaders.maxItems = 10
	n.feeds.leaders.mu.Unlock()
	e := n.Election("e")
	f := mustLead(t, e, "-1")
	count, at := 0, -2
	for l, err := range e.Observe(within(t, 30*time.Second)) {
		if err != nil {
			t.Fatal(err)
		}
		var value int
		if _, err := fmt.Sscan(string(l.Value), &value); err != nil || l.Fence != f || value <= at {
			t.Fatalf("%q came after %d", l.Value, at)
		}
		if at = value; at == 299 {
			break
		}
		if count++; count == 1 {
			for i := range 300 {
				if err := e.Proclaim(t.Context(), fmt.Append(nil, i)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
