package conclave_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// wantReason waits until a shard has a reason, and returns the explanation, whose text must contain a part.
func wantReason(t *testing.T, s *conclave.Shards, shard int, want conclave.ShardReason, part string) conclave.ShardExplanation {
	t.Helper()
	ctx := grouptest.Bounded(t)
	for {
		e, err := s.Explain(ctx, shard)
		grouptest.Must(t, err)
		if e.Reason == want {
			if e.Owner.Shard != shard || !strings.Contains(e.String(), part) {
				t.Errorf("%v of %+v: want %q", e, e, part)
			}
			return e
		}
		grouptest.Pass(time.Millisecond)
	}
}

// A shard is explained from before the first process until it is idle again.
func TestShards_ExplainMoves(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s, other := n.Shards("orders", 4), n.Shards("orders", 6)
		if e := wantReason(t, s, 3, conclave.ShardIdle, "no process"); e.Count != 0 || e.Set != "orders" {
			t.Errorf("%+v", e)
		}
		stuck := make(chan struct{})
		stick := func(ctx context.Context) error { <-stuck; return ctx.Err() }
		first := runShardsThat(t, s, does{0: stick, 1: stick, 2: stick, 3: stick})
		next(t, first.began, 4)
		e := wantReason(t, s, 3, conclave.ShardStays, "stays")
		if e.Owner.Session != grouptest.OwnSession(t, n) || e.Owner.Fence == 0 || e.Shards != 4 || e.Capacity != 1 || e.Takers != 1 || e.Count != 4 ||
			e.TTL < time.Second || e.Remaining <= 0 || e.Remaining > e.TTL || e.Alive == e.Owner.Client || (e.NodeName == "") != e.Owner.Client {
			t.Errorf("%+v", e)
		}
		second := runShards(t, s)
		wantReason(t, s, 3, conclave.ShardBalances, "its owner has 4 of 4 shards")
		grouptest.AwaitShards(t, s, func(i conclave.ShardsInfo) bool {
			a, b := i.Workers[0], i.Workers[1]
			return a.Shards == 4 && a.Owned == 4 && a.Moving == 2 && b.Shards == 0 && b.Owned == 0 && b.Moving == 0
		})
		wantReason(t, s, 0, conclave.ShardStays, "stays")
		first.Cancel()
		if e := wantReason(t, s, 0, conclave.ShardLeaves, "leaves"); !e.Owner.Moving || e.Takers != 1 {
			t.Errorf("%+v", e)
		}
		grouptest.Must(t, other.Resize(t.Context()))
		wantReason(t, s, 0, conclave.ShardResizes, "from 4 to 6 shards")
		if e := wantReason(t, other, 5, conclave.ShardResizes, "from 4 to 6 shards"); e.Owner.Fence != 0 {
			t.Errorf("%+v", e)
		}
		close(stuck)
		<-first.Err
		<-second.Err
		wantReason(t, other, 5, conclave.ShardIdle, "no process")
	})
}

// A shard whose owner has ended waits for that, and then for its lock-delay.
func TestShards_ExplainWaits(t *testing.T) {
	n := grouptest.Alone(t)
	session := func() *conclave.Session {
		return grouptest.MustSession(t, n, &conclave.SessionConfig{Name: "anna", LockDelay: time.Minute})
	}
	s, handle := session(), n.Shards("orders", 2)
	w := runShards(t, s.Shards("orders", 2, conclave.Settle(time.Hour)))
	next(t, w.began, 2)
	grouptest.Must(t, n.CloseSession(t.Context(), s.ID()))
	grouptest.WantError(t, <-w.Err, conclave.ErrSessionExpired)
	grouptest.AwaitShards(t, handle, func(i conclave.ShardsInfo) bool { return i.Workers[0].Shards == 2 && i.Workers[0].Owned == 0 })
	if e := wantReason(t, handle, 1, conclave.ShardSettles, `return of "anna"`); e.Settles < 59*time.Minute || e.Settles > time.Hour {
		t.Errorf("it waits for %v, want about an hour", e.Settles)
	}
	w = runShards(t, session().Shards("orders", 2))
	wantReason(t, handle, 1, conclave.ShardReturns, `"anna" gets it back`)
	w.stop()
}

// A shard can wait for a session without a name: the number of its worker shows that.
func TestShards_ExplainWaitsWithoutName(t *testing.T) {
	n := grouptest.Alone(t)
	s, handle := grouptest.MustSession(t, n, &conclave.SessionConfig{LockDelay: conclave.NoLockDelay}), n.Shards("orders", 2)
	w := runShards(t, s.Shards("orders", 2, conclave.Settle(time.Hour)))
	next(t, w.began, 2)
	grouptest.Must(t, s.Close(t.Context()))
	grouptest.WantError(t, <-w.Err, conclave.ErrSessionExpired)
	info, err := handle.Info(t.Context())
	grouptest.Must(t, err)
	e := wantReason(t, handle, 1, conclave.ShardSettles, "return of a session without a name")
	if number := info.Workers[0].Number; number == 0 || e.Owner != (conclave.ShardOwner{Shard: 1, Worker: number}) {
		t.Errorf("%+v: want that it waits for worker %d", e.Owner, number)
	}
}

// A shard whose work has not returned within Grace is in the lock-delay of its owner.
func TestShards_ExplainDelayed(t *testing.T) {
	n := grouptest.Alone(t)
	s := grouptest.MustSession(t, n, &conclave.SessionConfig{LockDelay: time.Minute})
	stuck := make(chan struct{})
	stick := func(ctx context.Context) error { <-stuck; return ctx.Err() }
	w := runShardsThat(t, s.Shards("orders", 2, conclave.Grace(0)), does{0: stick, 1: stick})
	next(t, w.began, 2)
	other := runShards(t, n.Shards("orders", 2))
	wantReason(t, n.Shards("orders", 2), 1, conclave.ShardDelayed, "lock-delay")
	close(stuck)
	w.stop()
	other.stop()
}

// The session of a process that has ended keeps its shards if it has no TTL.
func TestShards_ExplainDeserted(t *testing.T) {
	g := grouptest.Start(t, 3)
	s := grouptest.MustSession(t, g.Nodes[0], &conclave.SessionConfig{TTL: conclave.NoTTL, Name: "lasting", NoChecks: true})
	next(t, runShards(t, s.Shards("orders", 2)).began, 2)
	g.Kill(0)
	g.Start(0)
	n := g.Nodes[1]
	orders := n.Shards("orders", 2)
	if e := wantReason(t, orders, 1, conclave.ShardDeserted, "attached"); e.TTL != conclave.NoTTL || e.Owner.Name != "lasting" {
		t.Errorf("%+v", e)
	}
	grouptest.MustAttach(t, n, s.ID())
	wantReason(t, orders, 1, conclave.ShardDeserted, "attached")
}

func TestShards_ExplainFails(t *testing.T) {
	n := grouptest.Alone(t)
	next(t, runShards(t, n.Shards("orders", 2)).began, 2)
	for _, row := range []struct {
		shards *conclave.Shards
		shard  int
		want   error
	}{
		{n.Shards("orders", 2), 2, conclave.ErrInvalid}, {n.Shards("orders", 2), -1, conclave.ErrInvalid}, {n.Shards("", 2), 0, conclave.ErrInvalid},
		{n.Shards("orders", 3), 0, conclave.ErrLimitMismatch},
	} {
		_, err := row.shards.Explain(t.Context(), row.shard)
		grouptest.WantError(t, err, row.want)
	}
	if e, err := n.Shards("orders", 2).Explain(grouptest.Bounded(t), 1, conclave.Stale()); err != nil || e.Owner.Fence == 0 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestShardReason_String(t *testing.T) {
	for r, want := range map[conclave.ShardReason]string{
		conclave.ShardStays: "stays", conclave.ShardReturns: "returns", conclave.ShardIdle: "idle", 0: "ShardReason(0)", 10: "ShardReason(10)",
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
