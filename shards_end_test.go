package conclave_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// wantGivenAway wants nothing left of a set.
func wantGivenAway(t testing.TB, s *conclave.Shards) {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil || info.Count != 0 || info.Workers != nil {
		t.Errorf("%+v, %v: want no worker", info, err)
	}
}

// An error of a work ends Run, which returns it as it is when all others have returned.
func TestShards_WorkFails(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Shards("orders", 5)
		fails := make(chan struct{})
		w := runShardsThat(t, s, does{3: func(context.Context) error {
			<-fails
			return errBackup
		}})
		next(t, w.began, 5)
		close(fails)
		if err := <-w.Err; err != errBackup { //nolint:errorlint // as it is
			t.Errorf("got %v, want the error of the work", err)
		}
		for shard, e := range next(t, w.ended, 5) {
			if shard != 3 && !errors.Is(e.cause, errBackup) {
				t.Errorf("the work on shard %d ended with %v", shard, e.cause)
			}
		}
		wantGivenAway(t, s)
	})
}

// A panic of a work, and the end of its goroutine, go on to the caller of Run when all others have returned.
func TestShards_WorkDies(t *testing.T) {
	n := grouptest.Alone(t)
	s := n.Shards("orders", 4)
	for name, die := range map[string]func(){"panic": func() { panic("a bug") }, "goexit": runtime.Goexit} {
		var others, ended sync.WaitGroup
		others.Add(3)
		var panicked any
		returned := false
		ended.Go(func() {
			defer func() { panicked = recover() }()
			_ = s.Run(t.Context(), func(ctx context.Context, shard int, _ conclave.Fence) error {
				if shard == 2 {
					die()
				}
				defer others.Done()
				<-ctx.Done()
				return ctx.Err()
			})
			returned = true
		})
		ended.Wait()
		others.Wait()
		if want := map[string]any{"panic": "a bug", "goexit": nil}[name]; returned || panicked != want {
			t.Errorf("%s: the caller gets %v, returned %t", name, panicked, returned)
		}
		wantGivenAway(t, s)
	}
}

// A work that returns nil keeps its shard: it is not called again, and gives the shard away when that is to move.
func TestShards_WorkReturnsEarly(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Shards("orders", 4)
		done := func(context.Context) error { return nil }
		a := runShardsThat(t, s, does{0: done, 1: done, 2: done, 3: done})
		next(t, a.began, 4)
		for shard, e := range next(t, a.ended, 4) {
			if e.cause != nil {
				t.Errorf("the context of shard %d ended with %v", shard, e.cause)
			}
		}
		b := runShards(t, s)
		moved := next(t, b.began, 2)
		nothing(t, "began again", a.began)
		b.stop()
		if back := next(t, a.began, 2); len(back) != len(moved) {
			t.Errorf("%v came back, want %v", back, moved)
		}
		a.stop()
		wantGivenAway(t, s)
	})
}

// What a work returns when its context has ended is an error of Run only if it is another one.
func TestShards_ErrorsAtTheEnd(t *testing.T) {
	grouptest.InBubble(t, 1, func(g *grouptest.Group) {
		s := g.Nodes[0].Shards("orders", 3)
		ctx, cancel := context.WithTimeoutCause(g.T.Context(), 5*time.Second, errBackup) // all works begin meanwhile
		defer cancel()
		returns := []func(ctx context.Context) error{
			func(ctx context.Context) error { return ctx.Err() },
			func(ctx context.Context) error { return context.Cause(ctx) },
			func(context.Context) error { return errors.New("shard 2 is not flushed") },
		}
		err := s.Run(ctx, func(ctx context.Context, shard int, _ conclave.Fence) error {
			<-ctx.Done()
			return returns[shard](ctx)
		})
		grouptest.WantError(g.T, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "shard 2 is not flushed") || strings.Count(err.Error(), "deadline exceeded") != 1 {
			g.T.Error(err)
		}
		wantGivenAway(g.T, s)
		err = s.Run(ctx, func(context.Context, int, conclave.Fence) error { g.T.Error("it works"); return nil })
		grouptest.WantError(g.T, err, context.DeadlineExceeded)
	})
}

// A shard is taken from a work that does not return within Grace, and the same process does not call it for the shard again before.
func TestShards_GracePasses(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Shards("orders", 2, conclave.Grace(time.Millisecond))
		const shard = 1 // that with the largest number moves first
		stuck := make(chan struct{})
		a := runShardsThat(t, s, does{shard: func(ctx context.Context) error { <-stuck; <-ctx.Done(); return ctx.Err() }})
		before := next(t, a.began, 2)
		b := runShards(t, s)
		moved := next(t, b.began, 1)
		nothing(t, "ended", a.ended)
		b.stop()
		grouptest.AwaitShards(t, s, func(i conclave.ShardsInfo) bool { return i.Owned == 2 })
		nothing(t, "began while the earlier work on it goes on", a.began)
		close(stuck)
		if e := next(t, a.ended, 1)[shard]; e.cause != conclave.ErrShardMoved || e.fence != before[shard].fence { //nolint:errorlint // as it is
			t.Errorf("%+v", e)
		}
		if again := next(t, a.began, 1)[shard]; again.fence <= moved[shard].fence {
			t.Errorf("fence %v after %v", again.fence, moved[shard].fence)
		}
		a.stop()
		wantGivenAway(t, s)
	})
}

// Run that leaves does not wait for a work to give its shard away, but to return.
func TestShards_LeavesAfterGrace(t *testing.T) {
	n := grouptest.Alone(t)
	s := n.Shards("orders", 2, conclave.Grace(0))
	stuck := make(chan struct{})
	w := runShardsThat(t, s, does{0: func(context.Context) error { <-stuck; return nil }})
	next(t, w.began, 2)
	w.Cancel()
	grouptest.AwaitShards(t, s, func(i conclave.ShardsInfo) bool { return i.Count == 0 })
	select {
	case err := <-w.Err:
		t.Errorf("%v while a work goes on", err)
	default:
	}
	close(stuck)
	grouptest.WantError(t, <-w.Err, context.Canceled)
}

// With the session the shards are lost, and Run joins again under the next one, under which it gets them back.
func TestShards_SessionLost(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Shards("orders", 6)
		idle := make(chan struct{})
		w := runShardsThat(t, s, does{5: func(context.Context) error { <-idle; return nil }})
		before := next(t, w.began, 6)
		close(idle)
		next(t, w.ended, 1)
		grouptest.Must(t, n.CloseSession(t.Context(), grouptest.OwnSession(t, n)))
		for shard, e := range next(t, w.ended, 5) {
			if e.cause != conclave.ErrLockOwnershipLost { //nolint:errorlint // as it is
				t.Errorf("the work on shard %d ended with %v", shard, e.cause)
			}
		}
		for shard, b := range next(t, w.began, 6) {
			if b.fence <= before[shard].fence {
				t.Errorf("shard %d: fence %v after %v", shard, b.fence, before[shard].fence)
			}
		}
		w.stop()
		wantGivenAway(t, s)
	})
}

// After the loss, an error of a work that is not that of its context ends Run.
func TestShards_WorkFailsAtLoss(t *testing.T) {
	n := grouptest.Alone(t)
	w := runShardsThat(t, n.Shards("orders", 2), does{1: func(ctx context.Context) error { <-ctx.Done(); return errBackup }})
	next(t, w.began, 2)
	grouptest.Must(t, n.CloseSession(t.Context(), grouptest.OwnSession(t, n)))
	if err := <-w.Err; err != errBackup { //nolint:errorlint // as it is
		t.Error(err)
	}
}

// Under a session, Run ends with it.
func TestShards_OfSession(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		session := grouptest.MustSession(t, n, &conclave.SessionConfig{Name: "worker-1", LockDelay: conclave.NoLockDelay})
		s := session.Shards("orders", 3)
		w := runShards(t, s)
		next(t, w.began, 3)
		o, err := s.Owner(t.Context(), 2)
		if err != nil || o.Session != session.ID() || o.Name != "worker-1" || o.Node != grouptest.ID(n) {
			t.Errorf("%+v, %v", o, err)
		}
		grouptest.Must(t, session.Close(t.Context()))
		grouptest.WantError(t, <-w.Err, conclave.ErrSessionExpired)
		for _, e := range next(t, w.ended, 3) {
			if e.cause != conclave.ErrLockOwnershipLost { //nolint:errorlint // as it is
				t.Error(e.cause)
			}
		}
		grouptest.WantError(t, s.Run(t.Context(), nil), conclave.ErrSessionExpired)
		// Another session of that name gets the shards at once.
		info, err := n.Shards("orders", 3).Info(t.Context())
		if err != nil || info.Waiting != 3 || len(info.Workers) != 1 || info.Workers[0].Live || info.Workers[0].Remaining <= 0 {
			t.Errorf("%+v, %v", info, err)
		}
		if o, err := n.Shards("orders", 3).Owner(t.Context(), 2); err != nil || o != (conclave.ShardOwner{Shard: 2, Worker: info.Workers[0].Number, Reserved: "worker-1"}) {
			t.Errorf("%+v, %v", o, err)
		}
		same := runShards(t, grouptest.MustSession(t, n, &conclave.SessionConfig{Name: "worker-1"}).Shards("orders", 3))
		next(t, same.began, 3)
		other := runShards(t, grouptest.MustSession(t, n, &conclave.SessionConfig{Name: "worker-2"}).Shards("orders", 3))
		for shard := range next(t, other.began, 1) {
			if o, err := n.Shards("orders", 3).Owner(t.Context(), shard); err != nil || o.Name != "worker-2" {
				t.Errorf("%+v, %v", o, err)
			}
		}
		same.stop()
		other.stop()
	})
}

// Run ends with the node or client.
func TestShards_Closed(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		w := runShards(t, n.Shards("orders", 2))
		next(t, w.began, 2)
		grouptest.Must(t, n.Close(t.Context()))
		grouptest.WantError(t, <-w.Err, conclave.ErrClosed)
	})
}
