package conclave

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func mustAcquire(t testing.TB, k *KV, key, value string, s *Session) Entry {
	t.Helper()
	e, err := k.Acquire(within(t, 20*time.Second), key, []byte(value), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// keySession is a session without checks that lives as long as the test needs it.
func keySession(t testing.TB, n *Node, edit func(*SessionConfig)) *Session {
	t.Helper()
	cfg := &SessionConfig{TTL: time.Minute, LockDelay: NoLockDelay, Checks: NoChecks}
	if edit != nil {
		edit(cfg)
	}
	s, err := n.NewSession(within(t, 20*time.Second), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKeyAcquireRelease(t *testing.T) {
	n := alone(t)
	k, ctx := n.KV(), within(t, 30*time.Second)
	one, other := keySession(t, n, nil), keySession(t, n, nil)

	first := mustAcquire(t, k, "a", "1", one)
	if first.Session != one.ID() || first.LockIndex != 1 || string(first.Value) != "1" {
		t.Fatalf("%+v", first)
	}
	again := mustAcquire(t, k, "a", "2", one)
	if again.LockIndex != 1 || string(again.Value) != "2" || again.ModifyIndex <= first.ModifyIndex {
		t.Fatalf("%+v", again)
	}
	_, err := k.Acquire(ctx, "a", nil, other.ID())
	wantError(t, err, ErrLocked)
	if !strings.Contains(err.Error(), one.ID().String()) {
		t.Fatalf("%v: the holder is not named", err)
	}
	_, err = k.Release(ctx, "a", nil, other.ID())
	wantError(t, err, ErrNotHeld)
	_, err = k.Release(ctx, "none", nil, one.ID())
	wantError(t, err, ErrNotHeld)
	_, err = k.Acquire(ctx, "a", nil, SessionID{1})
	wantError(t, err, ErrSessionExpired)

	// Locks on keys are advisory: anybody may write, and the lock stays.
	if e := mustPut(t, k, "a", "3"); e.Session != one.ID() || e.LockIndex != 1 {
		t.Fatalf("%+v", e)
	}
	e, err := k.Release(ctx, "a", []byte("4"), one.ID(), Flags(5))
	if err != nil || e.Session != (SessionID{}) || e.LockIndex != 1 || string(e.Value) != "4" || e.Flags != 5 {
		t.Fatal(e, err)
	}
	wantEntry(t, mustGet(t, k, "a"), e)
	if e := mustAcquire(t, k, "a", "5", other); e.LockIndex != 2 {
		t.Fatalf("%+v", e)
	}
}

// When a session ends, its keys are released or deleted, for everybody to see;
// and if it did not end gracefully, its lock-delay keeps them from others.
func TestKeysOfSessionsThatEnd(t *testing.T) {
	n := alone(t)
	k, ctx := n.KV(), within(t, 30*time.Second)
	next := keySession(t, n, nil)
	for _, test := range []struct {
		name     string
		behavior Behavior
		delay    time.Duration
		force    bool
	}{
		{"release", Release, time.Minute, false},
		{"release by force", Release, NoLockDelay, true},
		{"release by force, delayed", Release, time.Minute, true},
		{"delete", Delete, time.Minute, false},
		{"delete by force, delayed", Delete, time.Minute, true},
	} {
		s := keySession(t, n, func(c *SessionConfig) { c.Behavior, c.LockDelay = test.behavior, test.delay })
		held := mustAcquire(t, k, test.name, "kept", s)
		if test.force {
			if err := n.CloseSession(ctx, s.ID()); err != nil {
				t.Fatal(err)
			}
		} else if err := s.Close(ctx); err != nil {
			t.Fatal(err)
		}
		event := nextEvent(t, k, test.name, held.ModifyIndex)
		e, err := k.Get(ctx, test.name)
		if test.behavior == Delete {
			wantError(t, err, ErrKeyNotFound)
			wantEntry(t, event.Entry, held)
		} else if err != nil || e.Session != (SessionID{}) || string(e.Value) != "kept" || e.ModifyIndex <= held.ModifyIndex || event.Index != e.ModifyIndex {
			t.Fatal(test.name, e, event, err)
		}
		if event.Deleted != (test.behavior == Delete) {
			t.Fatalf("%s: %+v", test.name, event)
		}
		wantError(t, n.CheckSequencer(ctx, held.Sequencer()), ErrStaleFence)
		_, err = k.Acquire(ctx, test.name, nil, next.ID())
		if delayed := test.force && test.delay > 0; delayed != errors.Is(err, ErrLockDelay) {
			t.Fatalf("%s: %v", test.name, err)
		}
	}
}

// nextEvent waits for the first change behind an index.
func nextEvent(t *testing.T, k *KV, prefix string, after uint64) Event {
	t.Helper()
	for e, err := range k.Watch(within(t, 20*time.Second), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	return Event{}
}

// A sequencer is stale after every way of losing the key, for good.
func TestSequencerStale(t *testing.T) {
	g := group(t, 3, nil)
	n := g.nodes[0]
	k, ctx := n.KV(), within(t, 60*time.Second)
	for _, test := range []struct {
		name string
		lose func(s *Session) error
	}{
		{"released", func(s *Session) error { _, err := k.Release(ctx, "key", nil, s.ID()); return err }},
		{"deleted", func(*Session) error { return k.Delete(ctx, "key") }},
		{"deleted with others", func(*Session) error { return k.DeletePrefix(ctx, "k") }},
		{"session closed", func(s *Session) error { return s.Close(ctx) }},
		{"session closed by force", func(s *Session) error { return g.nodes[1].CloseSession(ctx, s.ID()) }},
	} {
		s := keySession(t, n, nil)
		q := mustAcquire(t, k, "key", "", s).Sequencer()
		if err := g.nodes[2].CheckSequencer(ctx, q); err != nil {
			t.Fatal(test.name, err)
		}
		if _, err := k.Txn(ctx, OpCheckSequencer(q), OpPut("by holder", []byte(test.name))); err != nil {
			t.Fatal(test.name, err)
		}
		if err := test.lose(s); err != nil {
			t.Fatal(test.name, err)
		}
		wantStale(t, ctx, g, q)
		if s.Err() == nil {
			mustAcquire(t, k, "key", "", s) // the same session, another acquisition
			wantStale(t, ctx, g, q)
			_ = s.Close(ctx)
		}
	}
	wantError(t, n.CheckSequencer(ctx, Sequencer{}), ErrInvalid)
}

func wantStale(t *testing.T, ctx context.Context, g *testGroup, q Sequencer) {
	t.Helper()
	for _, n := range g.nodes {
		wantError(t, n.CheckSequencer(ctx, q), ErrStaleFence)
	}
	_, err := g.nodes[1].KV().Txn(ctx, OpCheckSequencer(q), OpPut("by holder", []byte("late")))
	wantError(t, err, ErrCompareFailed)
}

func TestTxn(t *testing.T) {
	n := alone(t)
	k, ctx := n.KV(), within(t, 30*time.Second)
	s := keySession(t, n, nil)
	entries, err := k.Txn(ctx,
		OpExpect("a", 0),
		OpPut("a", []byte("1"), Flags(1)),
		OpPutFenced("f", []byte("2"), 9),
		OpAcquire("l", []byte("3"), s.ID()),
		OpPut("a", []byte("4")),
		OpPut("p/1", nil), OpPut("p/2", nil), OpDeletePrefix("p/"),
		OpDelete("none"),
	)
	if err != nil || len(entries) != 9 {
		t.Fatal(entries, err)
	}
	wantEntry(t, entries[0], Entry{})
	wantEntry(t, entries[7], Entry{})
	wantEntry(t, entries[8], Entry{})
	if string(entries[1].Value) != "1" || entries[1].Flags != 1 || entries[1].ModifyIndex >= entries[4].ModifyIndex {
		t.Fatalf("%+v", entries)
	}
	wantEntry(t, entries[4], mustGet(t, k, "a"))
	wantEntry(t, entries[2], mustGet(t, k, "f"))
	wantEntry(t, entries[3], mustGet(t, k, "l"))
	if keys, err := k.Keys(ctx, "", ""); err != nil || len(keys) != 3 {
		t.Fatal(keys, err)
	}

	q, at := entries[3].Sequencer(), entries[4].ModifyIndex
	after, err := k.Txn(ctx, OpCheckSequencer(q), OpExpect("a", at), OpCompareAndSwap("a", at, []byte("5")),
		OpCompareAndDelete("f", entries[2].ModifyIndex), OpRelease("l", []byte("6"), s.ID()))
	if err != nil {
		t.Fatal(err)
	}
	if after[0].LockIndex != q.LockIndex || after[1].ModifyIndex != at || after[2].ModifyIndex <= at || after[4].Session != (SessionID{}) {
		t.Fatalf("%+v", after)
	}
}

// One operation that is refused leaves nothing of the others, and is named.
func TestTxnRefused(t *testing.T) {
	n := alone(t)
	k, ctx := n.KV(), within(t, 30*time.Second)
	s, other := keySession(t, n, nil), keySession(t, n, nil)
	held := mustAcquire(t, k, "held", "", s)
	if _, err := k.PutFenced(ctx, "fenced", nil, 9); err != nil {
		t.Fatal(err)
	}
	mustPut(t, k, "third", "")
	before, err := k.Index(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		op   Op
		want error
	}{
		{OpExpect("held", 0), ErrCompareFailed},
		{OpCompareAndSwap("held", held.ModifyIndex+1, nil), ErrCompareFailed},
		{OpCompareAndDelete("held", 0), ErrCompareFailed},
		{OpCheckSequencer(Sequencer{"held", held.LockIndex + 1, s.ID()}), ErrCompareFailed},
		{OpCheckSequencer(Sequencer{"held", held.LockIndex, other.ID()}), ErrCompareFailed},
		{OpPutFenced("fenced", nil, 8), ErrStaleFence},
		{OpAcquire("held", nil, other.ID()), ErrLocked},
		{OpAcquire("free", nil, SessionID{1}), ErrSessionExpired},
		{OpRelease("held", nil, other.ID()), ErrNotHeld},
	} {
		_, err := k.Txn(ctx, OpPut("new", []byte("x")), OpDelete("third"), OpAcquire("new", nil, s.ID()), test.op)
		wantError(t, err, test.want)
		if !strings.Contains(err.Error(), "operation 3, "+test.op.what) {
			t.Fatalf("%v: the operation is not named", err)
		}
	}
	if index, err := k.Index(ctx); err != nil || index != before {
		t.Fatalf("changes up to %d, not %d, %v", index, before, err)
	}
	if keys, err := k.Keys(ctx, "", ""); err != nil || len(keys) != 3 {
		t.Fatal(keys, err)
	}
}
