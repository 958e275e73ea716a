package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

func (g *fakeGroup) shards(name string) *machine.ShardsView {
	g.settle()
	g.mu.Lock()
	defer g.mu.Unlock()
	return machine.Ask[*machine.ShardsView](g.machine, machine.ShardsQuery{Name: name})
}

func joinShards(ctx context.Context, c *Client, lease *Lease) (*ShardWorker, error) {
	return JoinShards(ctx, c, ShardWorkerConfig{Lease: lease, Set: "s", Count: 4, Capacity: 1})
}

func mustJoin(t *testing.T, c *Client, lease *Lease) *ShardWorker {
	t.Helper()
	w, err := joinShards(t.Context(), c, lease)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// withShards runs a test with a group that knows shards, in a bubble.
func withShards(t *testing.T, f func(*testing.T, *Client, *fakeGroup)) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		c.StopRenewing()
		raise(t, c, wire.LevelShards)
		f(t, c, g)
	})
}

// Below the level a member would skip the commands, so they are not submitted.
func TestShards_BelowLevel(t *testing.T) {
	c, g := newFake(t)
	raise(t, c, wire.LevelShards-1)
	before := g.last()
	_, err := joinShards(t.Context(), c, nil)
	resized := ResizeShards(t.Context(), c, "s", 3)
	if !isCode(err, wire.Code_LEVEL) || !isCode(resized, wire.Code_LEVEL) || g.last() != before {
		t.Errorf("got %v and %v, want LEVEL, and nothing submitted", err, resized)
	}
}

// What one worker has and releases, and what it is left with when it leaves.
func TestShardWorker_ReleasesAndLeaves(t *testing.T) {
	withShards(t, func(t *testing.T, c *Client, g *fakeGroup) {
		lease := mustOpen(t, c, fakeTTL)
		w, err := JoinShards(t.Context(), c, ShardWorkerConfig{Lease: lease, Set: "s", Count: 4, Capacity: 3, Settle: 7})
		if err != nil {
			t.Fatal(err)
		}
		if op := g.last().GetJoinShards(); op.GetSet() != "s" || op.GetCount() != 4 || wire.ID(op.GetSession()) != lease.id ||
			op.GetHandle() != w.number || op.GetCapacity() != 3 || op.GetSettle() != 7 {
			t.Errorf("%v", op)
		}
		share := w.Share(g.shards("s"))
		if !share.Present || share.Leaving || len(share.Shards) != 4 || share.Shards[3].Shard != 3 || share.Shards[3].Fence == 0 {
			t.Fatalf("%+v", share)
		}
		other := mustJoin(t, c, lease)
		if s := other.Share(g.shards("s")); !s.Present || len(s.Shards) != 0 {
			t.Errorf("%+v of another handle", s)
		}
		moving := slices.DeleteFunc(slices.Clone(w.Share(g.shards("s")).Shards), func(s AssignedShard) bool { return !s.Moving })
		g.refuseFirst(2, func(c *wire.Command) bool { return c.GetReleaseShards() != nil || c.GetLeaveShards() != nil })
		if err := w.Release(moving, true); err != nil || len(moving) != 1 { // by capacity
			t.Fatalf("%v, %+v", err, moving)
		}
		if op := g.last().GetReleaseShards(); !op.GetLost() || op.GetShards()[0] != moving[0].Shard || op.GetFences()[0] != moving[0].Fence {
			t.Errorf("%v", op)
		}
		left, err := w.Leave()()
		if err != nil || len(left) != 3 {
			t.Fatalf("%+v, %v", left, err)
		}
		if s := w.Share(g.shards("s")); !s.Leaving || len(s.Shards) != 3 {
			t.Errorf("%+v of a worker that leaves", s)
		}
		if err := w.Release(left, false); err != nil || g.last().GetReleaseShards().GetLost() {
			t.Error(err)
		}
		if s := w.Share(g.shards("s")); s.Present {
			t.Errorf("%+v of a worker that has left", s)
		}
		if left, err := w.Leave()(); err != nil || left != nil {
			t.Errorf("a second Leave: %+v, %v", left, err)
		}
		if s := w.Share(nil); s.Present {
			t.Error("a worker of no set")
		}
	})
}

// A worker of which no caller learns leaves and releases what it has, since the group has assigned shards to it.
func TestJoinShards_Abandoned(t *testing.T) {
	withShards(t, func(t *testing.T, c *Client, g *fakeGroup) {
		lease := mustOpen(t, c, fakeTTL)
		g.hold()
		g.set(func() { g.sent = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := joinShards(ctx, c, lease)
		wantKind(t, err, Interrupted) // whether the worker joins does not matter
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		g.release()
		synctest.Wait()
		if v := g.shards("s"); v != nil || g.last().GetReleaseShards() == nil {
			t.Errorf("%+v is left", v)
		}
	})
}

func TestJoinShards_Cancelled(t *testing.T) {
	withShards(t, func(t *testing.T, c *Client, g *fakeGroup) {
		lease := mustOpen(t, c, fakeTTL)
		g.hold()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := joinShards(ctx, c, lease)
		wantKind(t, err, Unavailable)
		_, err = joinShards(ctx, c, lease)
		wantKind(t, err, Interrupted)
		g.release()
		if v := g.shards("s"); v != nil {
			t.Errorf("%+v", v)
		}
	})
}

// The client's own lease may end before the worker has joined: it joins under the next one. Under another lease it cannot.
func TestJoinShards_LeaseEnds(t *testing.T) {
	withShards(t, func(t *testing.T, c *Client, g *fakeGroup) {
		own, err := c.leaseFor(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		fixed := mustOpen(t, c, fakeTTL)
		g.hold()
		joined, refused := make(chan *ShardWorker, 1), make(chan error, 1)
		go func() {
			w, err := joinShards(t.Context(), c, nil)
			if err != nil {
				t.Error(err)
			}
			joined <- w
		}()
		go func() {
			_, err := joinShards(t.Context(), c, fixed)
			refused <- err
		}()
		synctest.Wait()
		own.end(endedByGroup(), lost)
		fixed.end(endedByGroup(), lost)
		wantKind(t, <-refused, Expired)
		synctest.Wait()
		g.release()
		w := <-joined
		if w.lease == own || w.Err() != nil || !w.Is(w.lease.id, w.number) || w.Is(own.id, w.number) {
			t.Error("it has joined under the lease that has ended")
		}
		synctest.Wait()
		if v := g.shards("s"); len(v.Workers) != 1 {
			t.Errorf("%+v", v.Workers)
		}
	})
}

// The group ends the session before it gets the command.
func TestJoinShards_SessionUnknown(t *testing.T) {
	withShards(t, func(t *testing.T, c *Client, g *fakeGroup) {
		own, err := c.leaseFor(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		own.id[0]++ // the group does not know it
		w := mustJoin(t, c, nil)
		if w.lease == own || own.Err() == nil {
			t.Error("the lease lives on")
		}
	})
}

// With the lease, what the worker has is lost, and nothing waits for the group.
func TestShardWorker_Lost(t *testing.T) {
	withShards(t, func(t *testing.T, c *Client, g *fakeGroup) {
		w := mustJoin(t, c, mustOpen(t, c, fakeTTL))
		h, err := w.Begin("s 0", 7)
		if err != nil {
			t.Fatal(err)
		}
		released, err := w.Begin("s 1", 8)
		if err != nil {
			t.Fatal(err)
		}
		w.Done(released)
		g.hold()
		w.lease.end(endedByGroup(), lost)
		<-w.Lost()
		if !h.endedWithLease() || released.endedWithLease() {
			t.Error("the shard that is not released is lost, and no other")
		}
		wantKind(t, w.Release([]AssignedShard{{Shard: 0, Fence: 7}}, false), Lost)
		_, err = w.Leave()()
		wantKind(t, err, Lost)
		if _, err := w.Begin("s 2", 9); !errors.Is(err, errLeaseEnded) {
			t.Errorf("a shard begins after the end of the lease: %v", err)
		}
		g.release()
	})
}

// shardFollower follows a set, in a bubble.
type shardFollower struct {
	t       *testing.T
	cancel  context.CancelFunc
	updates chan ShardsUpdate
	ended   chan error
}

func followShards(t *testing.T, c *Client) *shardFollower {
	ctx, cancel := context.WithCancel(t.Context())
	f := &shardFollower{t: t, cancel: cancel, updates: make(chan ShardsUpdate, 1000), ended: make(chan error, 1)}
	go func() {
		f.ended <- c.ObserveShards(ctx, "s", func(u ShardsUpdate) bool {
			f.updates <- u
			return true
		})
	}()
	return f
}

// next returns the next update, which has come already.
func (f *shardFollower) next() ShardsUpdate {
	f.t.Helper()
	synctest.Wait()
	select {
	case u := <-f.updates:
		return u
	default:
		f.t.Fatal("no update")
		return ShardsUpdate{}
	}
}

func (f *shardFollower) quiet() {
	f.t.Helper()
	if synctest.Wait(); len(f.updates) > 0 {
		f.t.Errorf("another update: %+v", <-f.updates)
	}
}

// A follower gets the state, each change of a shard, and the state again when more than that has changed or changes are missing.
func TestFollowShards(t *testing.T) {
	withShards(t, func(t *testing.T, c *Client, g *fakeGroup) {
		f := followShards(t, c)
		next, quiet := f.next, f.quiet
		if u := next(); u.View != nil || u.Change != nil {
			t.Errorf("%+v without a set", u)
		}
		lease := mustOpen(t, c, fakeTTL)
		w := mustJoin(t, c, lease)
		if u := next(); u.View == nil || len(w.Share(u.View).Shards) != 4 { // of a new set
			t.Fatalf("%+v", u)
		}
		if _, err := JoinShards(t.Context(), c, ShardWorkerConfig{Lease: lease, Set: "other", Count: 4, Capacity: 1}); err != nil {
			t.Fatal(err)
		}
		quiet()
		other := mustJoin(t, c, lease)
		var moving []AssignedShard
		for range 2 {
			u := next()
			if u.Change == nil || !u.Change.Moving || u.Change.Fence == 0 || !w.Is(u.Change.Session, u.Change.Handle) {
				t.Fatalf("%+v, want a shard to move", u.Change)
			}
			moving = append(moving, AssignedShard{Shard: u.Change.Shard, Fence: u.Change.Fence})
		}
		if err := w.Release(moving, false); err != nil {
			t.Fatal(err)
		}
		granted := 0
		for range 4 {
			if u := next(); u.Change.Fence != 0 && other.Is(u.Change.Session, u.Change.Handle) && !u.Change.Moving {
				granted++
			}
		}
		if quiet(); granted != 2 {
			t.Errorf("%d shards granted to the new worker", granted)
		}
		g.replaceState()
		if u := next(); u.View == nil || len(other.Share(u.View).Shards) != 2 {
			t.Errorf("%+v after a gap", u)
		}
		quiet()
		f.cancel()
		wantKind(t, <-f.ended, Interrupted)
	})
}

// A follower that leaves ends without an error, at the state and at a change.
func TestFollowShards_Leaves(t *testing.T) {
	withShards(t, func(t *testing.T, c *Client, g *fakeGroup) {
		w := mustJoin(t, c, mustOpen(t, c, fakeTTL))
		if err := w.Follow(t.Context(), func(ShardsUpdate) bool { return false }); err != nil {
			t.Error(err)
		}
		n := 0
		if err := w.Follow(t.Context(), func(u ShardsUpdate) bool {
			if n++; u.Change == nil {
				mustJoin(t, c, w.lease)
			}
			return n == 1
		}); err != nil || n != 2 {
			t.Errorf("%v after %d updates", err, n)
		}
	})
}
