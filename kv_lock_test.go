package conclave_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestKV_AcquireRelease(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		k, ctx := n.KV(), grouptest.Bounded(t)
		one, other := grouptest.MustSession(t, n, grouptest.Lasting()), grouptest.MustSession(t, n, grouptest.Lasting())

		first := grouptest.MustAcquireKey(t, k, "a", "1", one)
		if first.Session != one.ID() || first.LockIndex != 1 || string(first.Value) != "1" {
			t.Fatalf("%+v", first)
		}
		again := grouptest.MustAcquireKey(t, k, "a", "2", one)
		if again.LockIndex != 1 || string(again.Value) != "2" || again.ModifyIndex <= first.ModifyIndex {
			t.Fatalf("%+v", again)
		}
		_, err := k.Acquire(ctx, "a", nil, other.ID())
		grouptest.WantError(t, err, conclave.ErrLocked)
		if !strings.Contains(err.Error(), one.ID().String()) {
			t.Fatalf("%v: the error does not name the holder", err)
		}
		_, err = k.Release(ctx, "a", nil, other.ID())
		grouptest.WantError(t, err, conclave.ErrNotHeld)
		_, err = k.Release(ctx, "none", nil, one.ID())
		grouptest.WantError(t, err, conclave.ErrNotHeld)
		_, err = k.Acquire(ctx, "a", nil, conclave.SessionID{1})
		grouptest.WantError(t, err, conclave.ErrSessionExpired)

		// Locks on keys are advisory: other callers may write, and the lock remains.
		if e := grouptest.MustPut(t, k, "a", "3"); e.Session != one.ID() || e.LockIndex != 1 {
			t.Fatalf("%+v", e)
		}
		e, err := k.Release(ctx, "a", []byte("4"), one.ID(), conclave.WithFlags(5))
		if err != nil || e.Session != (conclave.SessionID{}) || e.LockIndex != 1 || string(e.Value) != "4" || e.Flags != 5 {
			t.Fatal(e, err)
		}
		grouptest.WantEntry(t, grouptest.MustGet(t, k, "a"), e)
		if e := grouptest.MustAcquireKey(t, k, "a", "5", other); e.LockIndex != 2 {
			t.Fatalf("%+v", e)
		}
	})
}

// When a session ends, its keys are released or deleted, as watches show. After an
// invalidation its lock-delay applies to them.
func TestKV_SessionEnds(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		k, ctx := n.KV(), grouptest.Bounded(t)
		next := grouptest.MustSession(t, n, grouptest.Lasting())
		for _, test := range []struct {
			name     string
			behavior conclave.Behavior
			delay    time.Duration
			force    bool
		}{
			{"release", conclave.ReleaseKeys, time.Minute, false},
			{"release by force", conclave.ReleaseKeys, conclave.NoLockDelay, true},
			{"release by force, delayed", conclave.ReleaseKeys, time.Minute, true},
			{"delete", conclave.DeleteKeys, time.Minute, false},
			{"delete by force, delayed", conclave.DeleteKeys, time.Minute, true},
		} {
			cfg := grouptest.Lasting()
			cfg.Behavior, cfg.LockDelay = test.behavior, test.delay
			s := grouptest.MustSession(t, n, cfg)
			held := grouptest.MustAcquireKey(t, k, test.name, "kept", s)
			if test.force {
				if err := n.CloseSession(ctx, s.ID()); err != nil {
					t.Fatal(err)
				}
			} else if err := s.Close(ctx); err != nil {
				t.Fatal(err)
			}
			event := grouptest.NextEvent(t, k, test.name, held.ModifyIndex)
			e, err := k.Get(ctx, test.name)
			if test.behavior == conclave.DeleteKeys {
				grouptest.WantError(t, err, conclave.ErrKeyNotFound)
				grouptest.WantEntry(t, event.Entry, held)
			} else if err != nil || e.Session != (conclave.SessionID{}) || string(e.Value) != "kept" || e.ModifyIndex <= held.ModifyIndex || event.Index != e.ModifyIndex {
				t.Fatal(test.name, e, event, err)
			}
			if event.Deleted != (test.behavior == conclave.DeleteKeys) {
				t.Fatalf("%s: %+v", test.name, event)
			}
			grouptest.WantError(t, n.CheckSequencer(ctx, held.Sequencer()), conclave.ErrStaleSequencer)
			_, err = k.Acquire(ctx, test.name, nil, next.ID())
			if delayed := test.force && test.delay > 0; delayed != errors.Is(err, conclave.ErrLockDelay) {
				t.Fatalf("%s: %v", test.name, err)
			}
		}
	})
}

func TestTxn(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		k, ctx := n.KV(), grouptest.Bounded(t)
		s := grouptest.MustSession(t, n, grouptest.Lasting())
		entries, err := k.Txn(ctx,
			conclave.OpExpect("a", 0),
			conclave.OpPut("a", []byte("1"), conclave.WithFlags(1)),
			conclave.OpPutFenced("f", []byte("2"), 9),
			conclave.OpAcquire("l", []byte("3"), s.ID()),
			conclave.OpPut("a", []byte("4")),
			conclave.OpPut("p/1", nil), conclave.OpPut("p/2", nil), conclave.OpDeletePrefix("p/"),
			conclave.OpDelete("none"),
		)
		if err != nil || len(entries) != 9 {
			t.Fatal(entries, err)
		}
		grouptest.WantEntry(t, entries[0], conclave.Entry{})
		grouptest.WantEntry(t, entries[7], conclave.Entry{})
		grouptest.WantEntry(t, entries[8], conclave.Entry{})
		if string(entries[1].Value) != "1" || entries[1].Flags != 1 || entries[1].ModifyIndex >= entries[4].ModifyIndex {
			t.Fatalf("%+v", entries)
		}
		grouptest.WantEntry(t, entries[4], grouptest.MustGet(t, k, "a"))
		grouptest.WantEntry(t, entries[2], grouptest.MustGet(t, k, "f"))
		grouptest.WantEntry(t, entries[3], grouptest.MustGet(t, k, "l"))
		if keys, err := k.Keys(ctx, "", ""); err != nil || len(keys) != 3 {
			t.Fatal(keys, err)
		}

		q, at := entries[3].Sequencer(), entries[4].ModifyIndex
		after, err := k.Txn(ctx, conclave.OpCheckSequencer(q), conclave.OpExpect("a", at), conclave.OpCompareAndSwap("a", at, []byte("5")),
			conclave.OpCompareAndDelete("f", entries[2].ModifyIndex), conclave.OpRelease("l", []byte("6"), s.ID()))
		if err != nil {
			t.Fatal(err)
		}
		if after[0].LockIndex != q.LockIndex || after[1].ModifyIndex != at || after[2].ModifyIndex <= at || after[4].Session != (conclave.SessionID{}) {
			t.Fatalf("%+v", after)
		}
	})
}

// A refused operation is named in the error, and none of the others has an effect.
func TestTxn_Refused(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		k, ctx := n.KV(), grouptest.Bounded(t)
		s, other := grouptest.MustSession(t, n, grouptest.Lasting()), grouptest.MustSession(t, n, grouptest.Lasting())
		held := grouptest.MustAcquireKey(t, k, "held", "", s)
		if _, err := k.PutFenced(ctx, "fenced", nil, 9); err != nil {
			t.Fatal(err)
		}
		grouptest.MustPut(t, k, "third", "")
		before, err := k.Index(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			op   conclave.Op
			what string
			want error
		}{
			{conclave.OpExpect("held", 0), "expect", conclave.ErrCompareFailed},
			{conclave.OpCompareAndSwap("held", held.ModifyIndex+1, nil), "compare and swap", conclave.ErrCompareFailed},
			{conclave.OpCompareAndDelete("held", 0), "compare and delete", conclave.ErrCompareFailed},
			{conclave.OpCheckSequencer(conclave.Sequencer{Key: "held", LockIndex: held.LockIndex + 1, Session: s.ID()}), "check sequencer", conclave.ErrStaleSequencer},
			{conclave.OpCheckSequencer(conclave.Sequencer{Key: "held", LockIndex: held.LockIndex, Session: other.ID()}), "check sequencer", conclave.ErrStaleSequencer},
			{conclave.OpPutFenced("fenced", nil, 8), "put fenced", conclave.ErrStaleFence},
			{conclave.OpAcquire("held", nil, other.ID()), "acquire", conclave.ErrLocked},
			{conclave.OpAcquire("free", nil, conclave.SessionID{1}), "acquire", conclave.ErrSessionExpired},
			{conclave.OpRelease("held", nil, other.ID()), "release", conclave.ErrNotHeld},
		} {
			_, err := k.Txn(ctx, conclave.OpPut("new", []byte("x")), conclave.OpDelete("third"), conclave.OpAcquire("new", nil, s.ID()), test.op)
			grouptest.WantError(t, err, test.want)
			var refused *conclave.TxnError
			if !errors.As(err, &refused) || refused.Operation != 3 || !strings.Contains(err.Error(), "operation 3, "+test.what) {
				t.Fatalf("%v: the error does not name the operation", err)
			}
		}
		if index, err := k.Index(ctx); err != nil || index != before {
			t.Fatalf("index is %d, want %d, %v", index, before, err)
		}
		if keys, err := k.Keys(ctx, "", ""); err != nil || len(keys) != 3 {
			t.Fatal(keys, err)
		}
	})
}
