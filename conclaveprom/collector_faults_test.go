package conclaveprom

import (
	"context"
	"slices"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// stall has the leader write to a disk that hangs. Whichever member leads by the time of the
// call, its entry is written here as well.
func (s *scene) stall() {
	leader := s.Leader()
	release := s.Seams[leader].FS.(*grouptest.PoweredDisk).Hang()
	defer release()
	put := make(chan error, 1)
	s.moves(leader, func() {
		go func() {
			_, err := s.Nodes[leader].KV().Put(s.t.Context(), "k", nil)
			put <- err
		}()
	}, "stalled_seconds")
	release()
	grouptest.Must(s.t, <-put)
	s.AwaitApplied(leader)
}

// resend loses a call on its way to the leader, of the member that never leads.
func (s *scene) resend() {
	follower := slices.IndexFunc(s.Nodes, func(n *conclave.Node) bool { return n.Status().Role == conclave.Standby })
	put := make(chan error, 1)
	s.moves(follower, func() {
		s.losing.Store(true)
		go func() {
			_, err := s.Nodes[follower].KV().Put(s.t.Context(), "k", nil)
			put <- err
		}()
		<-s.lost
		s.losing.Store(false)
	}, "commands_resent_total")
	grouptest.Must(s.t, <-put)
}

// partition cuts off a voter that follows. What notices it takes many seconds, of virtual time.
func partition(t *testing.T, moved map[string]bool) {
	grouptest.InBubble(t, 4, func(g *grouptest.Group) {
		s := &scene{Group: g, t: g.T, moved: moved, again: grouptest.BubbleHeartbeat}
		s.measure()
		s.partition()
	}, grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) { c.Voters, c.Limits.Calls = 3, 8 }))
}

func (s *scene) partition() {
	leader := s.Leader()
	away := slices.IndexFunc(s.Nodes, func(n *conclave.Node) bool {
		return n.Status().Role == conclave.Voter && n.Status().Leader != n.Status().ID
	})
	id := s.ID(away).String()
	lock := s.Nodes[away].FencedLock("away")
	grouptest.MustLock(s.t, lock)
	ctx, cancel := context.WithCancel(s.t.Context())
	s.moves(away, func() {
		s.Net.Isolate(away)
		for range 8 {
			go func() { _, _ = s.Nodes[away].KV().Put(ctx, "k", []byte("no quorum")) }()
		}
	}, "calls_pending", "calls_pending_bytes")
	s.moves(leader, func() {
		grouptest.MustPut(s.t, s.Nodes[leader].KV(), "k", "while it is away")
	}, "-member_alive{"+id+"}", "-redundancy")
	behind := func() (entries float64) { // the leader knows it
		for _, gather := range s.gather {
			entries = max(entries, gather()["member_lag_entries{"+id+"}"])
		}
		return entries
	}
	s.becomes("member_lag_entries", func() bool { return behind() > 0 })
	s.becomes("ready", func() bool { return s.gather[away]()["ready"] == 0 })
	s.becomes("has_leader", func() bool { return s.gather[away]()["has_leader"] == 0 })
	s.becomes("calls_pending", func() bool { return s.gather[away]()["calls_pending"] >= 8 })
	s.moves(away, func() { _, _ = s.Nodes[away].KV().Put(s.t.Context(), "k", []byte("one too many")) },
		"calls_refused_total", "calls_total{write,busy}")
	s.moves(away, func() { s.Net.Rejoin(away) }, "has_leader")
	cancel()
	s.becomes("member_lag_entries", func() bool { return behind() == 0 })
}

// snapshot has a member need one.
func (s *scene) snapshot() {
	leader := s.Leader()
	away := s.Others(leader)[0]
	s.Disconnect(away)
	grouptest.Busy(s.t, s.Nodes[leader], 200)
	total := func(name string) (n float64) { // of all members: another one may lead by then
		for _, gather := range s.gather {
			n += gather()[name]
		}
		return n
	}
	sent, bytes := total("snapshots_sent_total"), total("snapshot_sent_bytes_total")
	s.moves(away, func() { s.Net.Rejoin(away) }, "snapshots_installed_total")
	s.becomes("snapshots_sent_total", func() bool { return total("snapshots_sent_total") > sent })
	s.becomes("snapshot_sent_bytes_total", func() bool { return total("snapshot_sent_bytes_total") > bytes })
}
