package grouptest

import (
	"testing"

	"github.com/conclave-go/conclave"
)

// The sessions of a killed process end with their gossip check, long before their TTL.
// After a restart new ones can be opened.
func TestFailureDetector_ProcessKilled(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	victim := (g.Leader() + 1) % 3
	watcher := g.Nodes[(victim+1)%3]
	ctx := Bounded(t)
	s, err := g.Nodes[victim].NewSession(ctx, &conclave.SessionConfig{TTL: conclave.NoTTL, LockDelay: conclave.NoLockDelay, Behavior: conclave.DeleteKeys})
	if err != nil {
		t.Fatal(err)
	}
	held := MustAcquireKey(t, g.Nodes[victim].KV(), "held", "", s)
	g.Kill(victim)
	for e, err := range watcher.KV().Watch(ctx, "held", held.ModifyIndex) { // gossip takes long on a busy machine
		if Must(t, err); !e.Deleted {
			t.Fatalf("%+v", e)
		}
		break
	}
	g.Start(victim)
	if _, err := g.Nodes[victim].NewSession(ctx, nil); err != nil {
		t.Fatal(err)
	}
}
