package conclave_test

import (
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A watcher names the process that has a shard, and not an earlier one of the same session whose handle has the same number.
func TestShards_WatchAttached(t *testing.T) {
	g := grouptest.Start(t, 3)
	s := grouptest.MustSession(t, g.Nodes[0], &conclave.SessionConfig{TTL: conclave.NoTTL, Name: "lasting", NoChecks: true})
	first := runShards(t, s.Shards("orders", 4))
	next(t, first.began, 4)
	next(t, runShards(t, s.Shards("orders", 4)).began, 2)
	g.Kill(0)
	g.Start(0)

	n := g.Nodes[1]
	s = grouptest.MustAttach(t, n, s.ID())
	grouptest.MustLock(t, n.FencedLock("x")) // so the handle of the next worker has the number of that of the second one
	next(t, runShards(t, s.Shards("orders", 4)).began, 2)
	var other *shardWorker
	for o, err := range n.Shards("orders", 4).Watch(t.Context()) {
		grouptest.Must(t, err)
		switch {
		case o.Moving && o.Node != n.Status().ID:
			t.Errorf("%+v: want the node %v", o, n.Status().ID)
			return
		case o.Moving:
			return
		case other == nil && o.Shard == 3:
			other = runShards(t, n.Shards("orders", 4)) // it gets a shard of that worker
		}
	}
}
