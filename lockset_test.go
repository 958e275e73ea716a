package conclave_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func mustLockSet(t *testing.T, s *conclave.LockSet) conclave.Fence {
	t.Helper()
	f, err := s.Lock(t.Context())
	grouptest.Must(t, err)
	return f
}

// wantTaken wants a TakenError with these names.
func wantTaken(t *testing.T, err, sentinel error, names ...string) *conclave.TakenError {
	t.Helper()
	grouptest.WantError(t, err, sentinel)
	var taken *conclave.TakenError
	if !errors.As(err, &taken) {
		t.Fatalf("%v is no TakenError", err)
	}
	var got []string
	for _, n := range taken.Names {
		got = append(got, n.Name)
	}
	if !slices.Equal(got, names) {
		t.Errorf("taken are %q, want %q", got, names)
	}
	return taken
}

// A set and single locks exclude each other by name. Its fence is larger than all before, and a shared name has that of
// the holders that it joins.
func TestLockSet_TakesAllOrNone(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		set := n.LockSet([]string{"b", "a"}, conclave.Shared("r"), conclave.WithLabel("transfer"))
		reader, single := n.RWLock("r"), n.FencedLock("a")
		phase, before := mustRLock(t, reader), grouptest.MustLock(t, single)
		_, err := set.TryLock(t.Context())
		taken := wantTaken(t, err, conclave.ErrLocked, "a")
		if owner := taken.Names[0]; owner.Session != grouptest.OwnSession(t, n) || owner.Node != grouptest.ID(n) || owner.Fence != before || owner.Own {
			t.Errorf("%+v", owner)
		}
		if !strings.Contains(err.Error(), `"a" held by session`) {
			t.Error(err)
		}
		if info, err := n.FencedLock("b").Info(t.Context()); info.Held || err != nil {
			t.Errorf("a set that was refused holds a name: %+v, %v", info, err)
		}
		grouptest.MustUnlock(t, single)
		fence := mustLockSet(t, set)
		for name, want := range map[string]conclave.Fence{"a": fence, "b": fence, "r": phase} {
			if f, err := set.FenceOf(name); f != want || err != nil || fence <= before {
				t.Errorf("fence %v, %v of %s; want %v", f, err, name, want)
			}
			_, err := n.FencedLock(name).TryLock(t.Context())
			grouptest.WantError(t, err, conclave.ErrLocked)
		}
		wantInfo(t, set, fence, phase)
		grouptest.Must(t, set.Unlock(t.Context()))
		grouptest.Must(t, reader.RUnlock(t.Context()))
		grouptest.WantError(t, set.Unlock(t.Context()), conclave.ErrNotHeld)
		_, err = set.FenceOf("a")
		grouptest.WantError(t, err, conclave.ErrNotHeld)
		if list := grouptest.Locks(t, n, ""); len(list) != 0 {
			t.Errorf("idle locks are listed: %+v", list)
		}
	})
}

// wantInfo wants what a held set of the names b and a, and the shared name r, shows of itself.
func wantInfo(t *testing.T, set *conclave.LockSet, fence, phase conclave.Fence) {
	t.Helper()
	all, err := set.Info(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, name := range []string{"b", "a"} {
		if info := all[i]; info.Name != name || !info.Held || info.Fence != fence || info.Set != 3 || info.Holds != 1 || info.Label != "transfer" {
			t.Errorf("%+v", info)
		}
	}
	shared := all[2]
	if shared.Name != "r" || shared.Shared != 2 || shared.Fence != phase || shared.Holders[0].Set != 0 || shared.Holders[1].Set != 3 {
		t.Errorf("%+v", shared)
	}
}

// A set that waits holds nothing, and is granted when the last of its names is free.
func TestLockSet_Waits(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		a, b := n.FencedLock("a"), n.FencedLock("b")
		grouptest.MustLock(t, a)
		grouptest.MustLock(t, b)
		set := n.LockSet([]string{"a", "b"}, conclave.WithLabel("transfer"))
		w := startSet(t, n, set, "a", 0)
		e, err := n.Explain(t.Context(), "b")
		if err != nil || e.Waiters != 1 || len(e.Queue) != 1 || e.Queue[0].Set != 2 || e.Queue[0].Reserved || e.Queue[0].Label != "transfer" || e.Holder.Set != 0 {
			t.Errorf("%+v, %v", e, err)
		}
		grouptest.MustUnlock(t, a)
		if info, err := a.Info(t.Context()); info.Held || err != nil {
			t.Errorf("a set that waits holds a name: %+v, %v", info, err)
		}
		grouptest.MustUnlock(t, b)
		grouptest.Must(t, <-w.Err)
		e, err = n.Explain(t.Context(), "b")
		if err != nil || e.Holder.Set != 2 || e.Holder.Label != "transfer" {
			t.Errorf("%+v, %v", e, err)
		}
		grouptest.Must(t, set.Unlock(t.Context()))
	})
}

// Others pass a set that waits, four times in all. Then its names are reserved for it.
func TestLockSet_Reserved(t *testing.T) {
	n := grouptest.Alone(t)
	b := n.FencedLock("b")
	grouptest.MustLock(t, b)
	set, single := n.LockSet([]string{"a", "b"}), n.FencedLock("a")
	w := startSet(t, n, set, "b", 0)
	for range 4 {
		grouptest.MustLock(t, single)
		grouptest.MustUnlock(t, single)
	}
	_, err := single.TryLock(t.Context())
	grouptest.WantError(t, err, conclave.ErrLocked)
	if !strings.Contains(err.Error(), "requested exclusively before") {
		t.Errorf("the error does not name what is in the way: %v", err)
	}
	_, err = n.LockSet([]string{"x", "a"}).TryLock(t.Context())
	if taken := wantTaken(t, err, conclave.ErrLocked, "a"); !taken.Names[0].Waiting {
		t.Errorf("%+v", taken.Names)
	}
	_, err = set.TryLock(t.Context())
	if taken := wantTaken(t, err, conclave.ErrLocked, "a", "b"); !taken.Names[0].Own || taken.Names[1].Own {
		t.Errorf("another call of the handle has a reserved: %+v", taken.Names)
	}
	e, err := n.Explain(t.Context(), "a")
	if err != nil || e.Held || e.Sets != 1 || len(e.Queue) != 1 || !e.Queue[0].Reserved || e.Queue[0].Set != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if info, err := single.Info(t.Context()); err != nil || !info.Reserved || info.Sets != 1 || info.Waiters != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	later := make(chan error, 1)
	go func() {
		_, err := single.Lock(t.Context())
		later <- err
	}()
	grouptest.AwaitWaiters(t, single, 2)
	grouptest.MustUnlock(t, b)
	grouptest.Must(t, <-w.Err)
	select {
	case err := <-later:
		t.Fatalf("a later request passed the set: %v", err)
	default:
	}
	grouptest.Must(t, set.Unlock(t.Context()))
	grouptest.Must(t, <-later)
}

// What waits for a set is named by the first name in the way, and withdrawn when its context ends.
func TestLockSet_WaitEnds(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		b := n.FencedLock("b")
		grouptest.MustLock(t, b)
		w := startSet(t, n, n.LockSet([]string{"a", "b", "c"}), "b", 0)
		w.Cancel()
		err := <-w.Err
		grouptest.WantError(t, err, context.Canceled)
		if !strings.Contains(err.Error(), `"b" held by session`) || !strings.Contains(err.Error(), `lock "a, b, c"`) {
			t.Errorf("the error does not name what is in the way: %v", err)
		}
		grouptest.AwaitWaiters(t, b, 0)
		grouptest.MustUnlock(t, b)
		if list := grouptest.Locks(t, n, ""); len(list) != 0 {
			t.Errorf("a set that was withdrawn has left %+v", list)
		}
	})
}

// A refusal lists each name that is not available, and its text the first ones.
func TestLockSet_Taken(t *testing.T) {
	n := grouptest.Alone(t)
	names := []string{"a", "b", "c", "d", "e"}
	grouptest.MustLock(t, n.FencedLock("b"))
	mustRLock(t, n.RWLock("c"))
	mustLockSet(t, n.LockSet([]string{"d", "e"}))
	set := n.LockSet(names[:3], conclave.Shared(names[3:]...))
	_, err := set.TryLock(t.Context())
	taken := wantTaken(t, err, conclave.ErrLocked, "b", "c", "d", "e")
	if taken.Names[0].Shared || !taken.Names[1].Shared || taken.Names[2].Fence != taken.Names[3].Fence {
		t.Errorf("%+v", taken.Names)
	}
	if text := err.Error(); !strings.Contains(text, "; and 1 more") || strings.Contains(text, `"e"`) || !strings.Contains(text, `"c" held shared`) {
		t.Error(text)
	}
	s := grouptest.MustSession(t, n, &conclave.SessionConfig{TTL: time.Minute, LockDelay: time.Minute, NoChecks: true})
	mustLockSet(t, s.LockSet([]string{"x"}, conclave.Shared("y")))
	grouptest.Must(t, n.CloseSession(t.Context(), s.ID()))
	_, err = n.LockSet([]string{"w", "x", "y"}).TryLock(t.Context())
	taken = wantTaken(t, err, conclave.ErrLockDelay, "x", "y")
	for _, name := range taken.Names {
		if name.Delay <= 0 || name.Delay > time.Minute || name.Session != (conclave.SessionID{}) {
			t.Errorf("%+v", name)
		}
	}
	if !strings.Contains(err.Error(), `"x" in a lock-delay`) {
		t.Error(err)
	}
	_, err = n.LockSet([]string{"w"}, conclave.Shared("y")).TryLock(t.Context()) // shares of others do not keep a share out
	grouptest.Must(t, err)
}

// A handle that is itself in the way is named, also if all its names are shared.
func TestLockSet_OwnHandleInTheWay(t *testing.T) {
	n := grouptest.Alone(t)
	for _, set := range []*conclave.LockSet{n.LockSet([]string{"a", "b"}), n.LockSet(nil, conclave.Shared("c", "d"))} {
		mustLockSet(t, set)
		_, err := set.TryLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLocked)
		var taken *conclave.TakenError
		if !errors.As(err, &taken) || len(taken.Names) != 2 || !taken.Names[0].Own || !strings.Contains(err.Error(), "by this handle") {
			t.Error(err)
		}
		if set.Holds() != 1 {
			t.Errorf("%d holds", set.Holds())
		}
		grouptest.Must(t, set.Unlock(t.Context()))
	}
}

// Other owners hold shared names beside a set.
func TestLockSet_Shared(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		first, second := n.LockSet([]string{"a"}, conclave.Shared("r", "q")), n.LockSet([]string{"b"}, conclave.Shared("q"), conclave.Shared("r"))
		f := mustLockSet(t, first)
		g := mustLockSet(t, second)
		for _, name := range []string{"r", "q"} {
			if got, err := second.FenceOf(name); got != f || err != nil || g <= f {
				t.Errorf("fence %v, %v of %s; want %v, before %v", got, err, name, f, g)
			}
		}
		if f := mustRLock(t, n.RWLock("r")); f >= g {
			t.Errorf("a reader has fence %v", f)
		}
		grouptest.Must(t, first.Unlock(t.Context()))
		grouptest.Must(t, second.Unlock(t.Context()))
	})
}

func TestLockSet_Do(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		set := n.LockSet([]string{"a", "b"})
		mine := errors.New("mine")
		err := set.Do(t.Context(), func(ctx context.Context, fence conclave.Fence) error {
			if f, ok := conclave.FenceFromContext(ctx); !ok || f != fence || set.Holds() != 1 {
				t.Errorf("fence %v in the context, want %v", f, fence)
			}
			return mine
		})
		if err != mine || set.Holds() != 0 { //nolint:errorlint // as it is
			t.Errorf("%v, %d holds", err, set.Holds())
		}
		err = set.Do(t.Context(), func(ctx context.Context, _ conclave.Fence) error {
			grouptest.Must(t, n.CloseSession(t.Context(), grouptest.OwnSession(t, n)))
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, conclave.ErrLockOwnershipLost) || set.Holds() != 0 {
			t.Errorf("%v after a loss, %d holds", err, set.Holds())
		}
	})
}

// A set can end in time, as a whole.
func TestLockSet_MaxHold(t *testing.T) {
	n := grouptest.Alone(t)
	set := n.LockSet([]string{"a"}, conclave.Shared("r"), conclave.MaxHold(time.Hour))
	mustLockSet(t, set)
	grouptest.Must(t, set.Extend(t.Context(), time.Minute))
	all, err := set.Info(t.Context())
	if err != nil || all[0].EndsIn <= 0 || all[0].EndsIn > time.Minute || all[1].Holders[0].EndsIn <= 0 || all[1].Holders[0].EndsIn > time.Minute {
		t.Errorf("%+v, %v", all, err)
	}
	lost := set.Lost()
	if err := set.Extend(t.Context(), time.Millisecond); err != nil {
		grouptest.WantError(t, err, conclave.ErrHoldExpired) // it has ended before Extend returned
	}
	<-lost
	_, err = set.Fence()
	grouptest.WantError(t, err, conclave.ErrHoldExpired)
	grouptest.WantError(t, set.Unlock(t.Context()), conclave.ErrHoldExpired)
	mustLockSet(t, n.LockSet([]string{"r", "a"}))
	plain := n.LockSet([]string{"x"})
	mustLockSet(t, plain)
	grouptest.WantError(t, plain.Extend(t.Context(), time.Minute), conclave.ErrInvalid)
}

// Two sessions that take a set and a single lock each in another order: the second one is refused.
func TestLockSet_RefuseDeadlock(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		first, second := grouptest.MustSession(t, n, grouptest.Lasting()), grouptest.MustSession(t, n, grouptest.Lasting())
		mustLockSet(t, first.LockSet([]string{"a", "b"}))
		grouptest.MustLock(t, second.FencedLock("c"))
		w := startSet(t, n, first.LockSet([]string{"x", "c"}), "c", 0)
		_, err := second.LockSet([]string{"y", "b"}, conclave.RefuseDeadlock()).Lock(t.Context())
		grouptest.WantError(t, err, conclave.ErrDeadlock)
		var deadlock *conclave.DeadlockError
		if !errors.As(err, &deadlock) || deadlock.Sessions != 2 || deadlock.Cycle[0].Lock != "b" || deadlock.Cycle[0].Holder.Set != 2 || deadlock.Cycle[1].Waiter.Set != 2 {
			t.Errorf("%+v", err)
		}
		w.Cancel()
		<-w.Err
	})
}

// The session of a handle is that of the Session that has made it.
func TestLockSet_OfSession(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := grouptest.MustSession(t, n, grouptest.Lasting())
		set := s.LockSet([]string{"a", "b"})
		mustLockSet(t, set)
		if all, err := set.Info(t.Context()); err != nil || all[1].Session != s.ID() {
			t.Errorf("%+v, %v", all, err)
		}
		grouptest.Must(t, s.Close(t.Context()))
		_, err := set.Lock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
		grouptest.WantError(t, set.Unlock(t.Context()), conclave.ErrLockOwnershipLost)
		_, err = set.Lock(t.Context())
		grouptest.WantError(t, err, conclave.ErrSessionExpired)
	})
}

// The calls of a set are traced with its first names, and a grant names the release of the set before.
func TestTracer_CallsOfLockSet(t *testing.T) {
	g, recorders := startTraced(t, 1)
	n, ctx := g.Nodes[0], t.Context()
	long := []string{strings.Repeat("x", 60), strings.Repeat("y", 60), "z"}
	set := n.LockSet(long)
	for _, row := range []struct {
		call func() error
		want conclave.Operation
		err  error
	}{
		{func() error { _, err := set.Lock(ctx); return err }, conclave.Operation{Kind: conclave.CallLock, Op: "lock"}, nil},
		{func() error { _, err := n.LockSet(long).TryLock(ctx); return err }, conclave.Operation{Kind: conclave.CallTryLock, Op: "try lock"}, conclave.ErrLocked},
		{func() error { return set.Unlock(ctx) }, conclave.Operation{Kind: conclave.CallUnlock, Op: "unlock", Fence: 1}, nil},
		{func() error { return set.Unlock(ctx) }, conclave.Operation{Kind: conclave.CallUnlock, Op: "unlock"}, conclave.ErrNotHeld},
	} {
		row.want.Node, row.want.Name = n.Status().ID, long[0]+" and 2 more"
		err := row.call()
		s := recorders[0].last(t)
		if s.op != row.want || s.ends != 1 || !errors.Is(err, row.err) || !errors.Is(s.err, row.err) {
			t.Errorf("%s returned %v, and its span is %+v; want %+v, %v", row.want.Op, err, s, row.want, row.err)
		}
	}
	mustLockSet(t, set)
	waiting := grouptest.StartLock(t, n.FencedLock("z"))
	grouptest.Must(t, set.Unlock(ctx))
	grouptest.Must(t, <-waiting.Err)
	var release, granted string
	for _, s := range recorders[0].spans {
		switch {
		case s.op.Kind == conclave.CallUnlock && s.err == nil:
			release = s.carrier
		case s.op.Kind == conclave.CallLock && s.op.Name == "z":
			granted = string(s.events[len(s.events)-1].Cause)
		}
	}
	if release == "" || granted != release {
		t.Errorf("the grant is due to %q, want the release %q", granted, release)
	}
}

// A context that was done before the call is the reason, whatever the names' modes.
func TestLockSet_ContextDoneBefore(t *testing.T) {
	n := grouptest.Alone(t)
	for mode, s := range map[string]*conclave.LockSet{"exclusive": n.LockSet([]string{"a"}), "shared": n.LockSet(nil, conclave.Shared("b"))} {
		mustLockSet(t, s)
		if _, err := s.TryLock(grouptest.Expired()); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
