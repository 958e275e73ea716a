package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A set has one count. Another one is refused until Resize changes it, and then the former one is.
func TestShards_Count(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s, other := n.Shards("orders", 4), n.Shards("orders", 6)
		grouptest.Must(t, s.Resize(t.Context())) // there is no set
		w := runShards(t, s)
		next(t, w.began, 4)
		err := other.Run(t.Context(), nil)
		grouptest.WantError(t, err, conclave.ErrLimitMismatch)
		if !strings.Contains(err.Error(), `run "orders": in use with another limit: the set has 4 shards, and not 6`) {
			t.Error(err)
		}
		_, err = other.Owner(t.Context(), 5)
		grouptest.WantError(t, err, conclave.ErrLimitMismatch)
		_, err = grouptest.Collect(other.Owners(t.Context()))
		grouptest.WantError(t, err, conclave.ErrLimitMismatch)
		_, err = grouptest.Collect(other.Watch(t.Context()))
		grouptest.WantError(t, err, conclave.ErrLimitMismatch)
		grouptest.Must(t, s.Resize(t.Context())) // as it is

		stuck := make(chan struct{})
		grouptest.Must(t, other.Resize(t.Context()))
		grouptest.Must(t, other.Resize(t.Context()))
		err = <-w.Err
		grouptest.WantError(t, err, conclave.ErrLimitMismatch)
		if !strings.Contains(err.Error(), "the set has 6 shards, and not 4") {
			t.Error(err)
		}
		for shard, e := range next(t, w.ended, 4) {
			if e.cause != conclave.ErrShardMoved { //nolint:errorlint // as it is
				t.Errorf("the work on shard %d ended with %v", shard, e.cause)
			}
		}
		wantGivenAway(t, s)

		old := runShardsThat(t, s, does{1: func(ctx context.Context) error { <-stuck; return ctx.Err() }})
		next(t, old.began, 4)
		grouptest.Must(t, other.Resize(t.Context()))
		next(t, old.ended, 3)
		grouptest.WantError(t, n.Shards("orders", 5).Resize(t.Context()), conclave.ErrBusy)
		grouptest.WantError(t, s.Run(t.Context(), nil), conclave.ErrLimitMismatch)
		young := runShards(t, other)
		grouptest.AwaitShards(t, other, func(i conclave.ShardsInfo) bool { return len(i.Workers) == 2 && i.Count == 4 && i.Next == 6 })
		if o, err := other.Owner(t.Context(), 1); err != nil || o.Fence != 0 || o.Shard != 1 {
			t.Errorf("%+v, %v: under the count to come no shard has an owner", o, err)
		}
		if o, err := s.Owner(t.Context(), 1); err != nil || o.Fence == 0 || !o.Moving {
			t.Errorf("%+v, %v: under the former count the shard has one", o, err)
		}
		nothing(t, "began before the former owners have ended", young.began)
		close(stuck)
		next(t, young.began, 6)
		grouptest.WantError(t, <-old.Err, conclave.ErrLimitMismatch)
		young.stop()
	})
}

func TestShards_Invalid(t *testing.T) {
	n := grouptest.Alone(t)
	for name, row := range map[string]struct {
		shards *conclave.Shards
		want   error
		text   string
	}{
		"empty name":     {n.Shards("", 1), conclave.ErrInvalid, "empty"},
		"long name":      {n.Shards(strings.Repeat("x", 513), 1), conclave.ErrTooLarge, "513"},
		"no shard":       {n.Shards("s", 0), conclave.ErrInvalid, "1 to 4096, got 0"},
		"many shards":    {n.Shards("s", 4097), conclave.ErrInvalid, "4097"},
		"no capacity":    {n.Shards("s", 1, conclave.Capacity(0)), conclave.ErrInvalid, "capacity"},
		"large capacity": {n.Shards("s", 1, conclave.Capacity(1025)), conclave.ErrInvalid, "capacity"},
		"long settle":    {n.Shards("s", 1, conclave.Settle(24*time.Hour+1)), conclave.ErrInvalid, "settle"},
		"long grace":     {n.Shards("s", 1, conclave.Grace(24*time.Hour+1)), conclave.ErrInvalid, "grace"},
	} {
		ctx := t.Context()
		_, owner := row.shards.Owner(ctx, 0)
		_, owners := grouptest.Collect(row.shards.Owners(ctx))
		_, watch := grouptest.Collect(row.shards.Watch(ctx))
		_, info := row.shards.Info(ctx)
		for _, err := range []error{row.shards.Run(ctx, nil), row.shards.Resize(ctx), owner, owners, watch, info} {
			if !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.text) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, shard := range []int{-1, 4} {
		_, err := n.Shards("s", 4).Owner(t.Context(), shard)
		grouptest.WantError(t, err, conclave.ErrInvalid)
	}
	_, err := grouptest.Collect(n.ShardSets(t.Context(), "a\x00"))
	grouptest.WantError(t, err, conclave.ErrInvalid)
}

// A watcher gets the owner of each shard, and then each change.
func TestShards_Watch(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Shards("orders", 2)
		ctx, cancel := context.WithCancel(t.Context())
		seen, ended := make(chan conclave.ShardOwner, 1000), make(chan error, 1)
		go func() {
			var last error
			for o, err := range s.Watch(ctx) {
				if last = err; err == nil {
					seen <- o
				}
			}
			ended <- last
		}()
		want := func(shard int, node conclave.MemberID, moving bool) conclave.Fence {
			t.Helper()
			select {
			case o := <-seen:
				if o.Shard != shard || o.Node != node || o.Moving != moving || (o.Fence == 0) != (node == 0) || (o.Name == "") != (node == 0) {
					t.Errorf("%+v, want shard %d of node %v, moving %t", o, shard, node, moving)
				}
				return o.Fence
			case <-time.After(5 * time.Minute):
				t.Fatal("no change")
			}
			return 0
		}
		id := grouptest.ID(n)
		want(0, 0, false)
		want(1, 0, false)
		a := runShards(t, s)
		want(0, id, false)
		f := want(1, id, false)
		session := grouptest.MustSession(t, n, &conclave.SessionConfig{Name: "b"})
		b := runShards(t, session.Shards("orders", 2))
		if moves := want(1, id, true); moves != f {
			t.Errorf("fence %v moves, want %v", moves, f)
		}
		want(1, 0, false)
		if moved := want(1, id, false); moved <= f {
			t.Errorf("fence %v after %v", moved, f)
		}
		if owners, err := grouptest.Collect(s.Owners(t.Context(), conclave.Stale())); err != nil || owners[1].Name != "b" || owners[1].Session != session.ID() {
			t.Errorf("%+v, %v", owners, err)
		}
		b.stop()
		a.stop()
		for free := map[int]bool{}; len(free) < 2; {
			o := <-seen
			if free[o.Shard] = true; o.Fence != 0 {
				delete(free, o.Shard)
			}
		}
		cancel()
		grouptest.WantError(t, <-ended, context.Canceled)
	})
}

// A watcher may leave its loop.
func TestShards_WatchLeft(t *testing.T) {
	n := grouptest.Alone(t)
	s := n.Shards("orders", 3)
	for o, err := range s.Watch(t.Context()) {
		if grouptest.Must(t, err); o.Shard == 1 {
			break
		}
	}
	for o, err := range s.Owners(t.Context()) {
		if grouptest.Must(t, err); o.Shard == 1 {
			break
		}
	}
	w := runShards(t, s)
	next(t, w.began, 3)
	changes := 0
	for _, err := range s.Watch(t.Context()) {
		if grouptest.Must(t, err); changes > 3 {
			break
		}
		if changes++; changes == 3 {
			w.Cancel()
		}
	}
	grouptest.WantError(t, <-w.Err, context.Canceled)
}

// Shares are in proportion to the capacities.
func TestShards_Capacity(t *testing.T) {
	n := grouptest.Alone(t)
	large, small := n.Shards("orders", 8, conclave.Capacity(3)), n.Shards("orders", 8)
	a, b := runShards(t, large), runShards(t, small)
	grouptest.AwaitShards(t, small, func(i conclave.ShardsInfo) bool {
		shares := map[int]int{}
		for _, w := range i.Workers {
			shares[w.Capacity] = w.Shards
		}
		return i.Owned == 8 && i.Moving == 0 && shares[3] == 6 && shares[1] == 2
	})
	b.stop()
	a.stop()
}

func TestShardSets_Listed(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		var all []*shardWorker
		for i := range 3 {
			w := runShards(t, n.Shards(fmt.Sprint("orders-", i), i+1))
			next(t, w.began, i+1)
			all = append(all, w)
		}
		list, err := grouptest.Collect(n.ShardSets(t.Context(), "orders-", conclave.After("orders-0")))
		if err != nil || len(list) != 2 || list[0].Name != "orders-1" || list[0].Count != 2 || list[1].Owned != 3 || list[1].Generation == 0 || list[1].Workers != nil {
			t.Errorf("%+v, %v", list, err)
		}
		info, err := n.Shards("orders-2", 1).Info(t.Context())
		if err != nil || info.Count != 3 || len(info.Workers) != 1 {
			t.Fatalf("%+v, %v", info, err)
		}
		if w := info.Workers[0]; w.Session != grouptest.OwnSession(t, n) || w.Node != grouptest.ID(n) || !w.Live || w.Leaving || w.Capacity != 1 ||
			w.Shards != 3 || w.Owned != 3 || w.Moving != 0 || w.Remaining != 0 {
			t.Errorf("%+v", w)
		}
		for _, w := range all {
			w.stop()
		}
	})
}
