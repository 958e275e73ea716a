package conclave

import (
	"testing"
	"time"
)

// The sessions of a crashed process end by their gossip check, long before their TTL; a
// restarted member may open new ones.
func TestGossipCheck_SessionsOfCrashedProcessEnd(t *testing.T) {
	g := group(t, 3, nil)
	victim := (g.leader() + 1) % 3
	watcher := g.nodes[(victim+1)%3]
	ctx := within(t, 60*time.Second)
	s, err := g.nodes[victim].NewSession(ctx, &SessionConfig{TTL: NoTTL, LockDelay: NoLockDelay, Behavior: Delete})
	if err != nil {
		t.Fatal(err)
	}
	held := mustAcquire(t, g.nodes[victim].KV(), "held", "", s)
	g.kill(victim)
	if e := nextEvent(t, watcher.KV(), "held", held.ModifyIndex); !e.Deleted {
		t.Fatalf("%+v", e)
	}
	g.start(victim)
	if _, err := g.nodes[victim].NewSession(ctx, nil); err != nil {
		t.Fatal(err)
	}
}
