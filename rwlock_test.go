package conclave_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func mustRLock(t *testing.T, l *conclave.RWLock) conclave.Fence {
	t.Helper()
	f, err := l.RLock(t.Context())
	grouptest.Must(t, err)
	return f
}

// A FencedLock and an RWLock of one name are handles to one lock, in one queue.
func TestRWLock_OneLockOfAName(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		a, b, plain := n.RWLock("x"), n.RWLock("x", conclave.WithLabel("report")), n.FencedLock("x")
		first := mustRLock(t, a)
		if f := mustRLock(t, b); f != first {
			t.Errorf("fences %v and %v of two readers", first, f)
		}
		_, err := plain.TryLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLocked)
		if !strings.Contains(err.Error(), "held shared by session") {
			t.Errorf("the error does not say how it is held: %v", err)
		}
		info, err := plain.Info(t.Context())
		if err != nil || !info.Held || info.Shared != 2 || len(info.Holders) != 2 || info.Fence != first || info.Holders[1].Label != "report" ||
			info.Holders[0].Node != grouptest.ID(n) || info.Session != info.Holders[0].Session {
			t.Errorf("%+v, %v", info, err)
		}
		waiting := grouptest.StartLock(t, plain)
		_, err = b.TryRLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLocked)
		if !strings.Contains(err.Error(), "requested exclusively") {
			t.Errorf("the error does not name what is in the way: %v", err)
		}
		e, err := n.Explain(t.Context(), "x")
		if err != nil || e.Shared != 2 || len(e.Holders) != 2 || !e.Holder.Shared || !e.Holders[1].Shared || e.Holders[1].Label != "report" ||
			e.Waiters != 1 || len(e.Queue) != 1 || e.Queue[0].Shared {
			t.Errorf("%+v, %v", e, err)
		}
		grouptest.Must(t, a.RUnlock(t.Context()))
		grouptest.Must(t, b.RUnlock(t.Context()))
		grouptest.Must(t, <-waiting.Err)
		if f, err := plain.Fence(); err != nil || f <= first {
			t.Errorf("fence %v, %v; want more than %v", f, err, first)
		}
		_, err = a.TryRLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLocked)
		grouptest.MustUnlock(t, plain)
		if list := grouptest.Locks(t, n, ""); len(list) != 0 {
			t.Errorf("idle locks are listed: %+v", list)
		}
	})
}

func TestRWLock_Downgrade(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		l := n.RWLock("x")
		_, err := l.Downgrade(t.Context())
		grouptest.WantError(t, err, conclave.ErrNotHeld)
		first, err := l.Lock(t.Context())
		grouptest.Must(t, err)
		waiting := grouptest.StartLock(t, n.FencedLock("x"))
		second, err := l.Downgrade(t.Context())
		if err != nil || second <= first {
			t.Fatalf("fence %v, %v after %v", second, err, first)
		}
		select {
		case err := <-waiting.Err:
			t.Fatalf("a writer got the lock: %v", err)
		default:
		}
		grouptest.WantError(t, l.Unlock(t.Context()), conclave.ErrNotHeld)
		grouptest.Must(t, l.RUnlock(t.Context()))
		grouptest.Must(t, <-waiting.Err)
	})
}

func TestRWLock_Do(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		l := n.RWLock("x")
		mine := errors.New("mine")
		for name, do := range map[string]func(context.Context, func(context.Context, conclave.Fence) error) error{"Do": l.Do, "RDo": l.RDo} {
			err := do(t.Context(), func(ctx context.Context, fence conclave.Fence) error {
				if f, ok := conclave.FenceFromContext(ctx); !ok || f != fence || l.Holds() != 1 {
					t.Errorf("%s: fence %v in the context, want %v", name, f, fence)
				}
				return mine
			})
			if err != mine || l.Holds() != 0 { //nolint:errorlint // as it is
				t.Errorf("%s: %v", name, err)
			}
			err = do(t.Context(), func(ctx context.Context, _ conclave.Fence) error {
				grouptest.Must(t, n.CloseSession(t.Context(), grouptest.OwnSession(t, n)))
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if !errors.Is(err, conclave.ErrLockOwnershipLost) || l.Holds() != 0 {
				t.Errorf("%s: %v after a loss, %d holds", name, err, l.Holds())
			}
		}
		grouptest.Must(t, l.Do(t.Context(), func(ctx context.Context, _ conclave.Fence) error {
			_, err := l.Downgrade(ctx)
			return err
		}))
		if l.Holds() != 0 {
			t.Errorf("%d holds are left of a Do that downgraded", l.Holds())
		}
	})
}

// One owner is refused what it would wait for for ever, with what to do instead.
func TestRWLock_Reentrant(t *testing.T) {
	n := grouptest.Alone(t)
	l := n.RWLock("x", conclave.Reentrant(2))
	mustRLock(t, l)
	_, err := l.Lock(t.Context())
	grouptest.WantError(t, err, conclave.ErrInvalid)
	if !strings.Contains(err.Error(), "no upgrade") {
		t.Error(err)
	}
	mustRLock(t, l)
	_, err = l.RLock(t.Context())
	grouptest.WantError(t, err, conclave.ErrAcquireLimitReached)
	grouptest.Must(t, l.RUnlock(t.Context()))
	grouptest.Must(t, l.RUnlock(t.Context()))
	_, err = l.Lock(t.Context())
	grouptest.Must(t, err)
	_, err = l.RLock(t.Context())
	grouptest.WantError(t, err, conclave.ErrInvalid)
	if !strings.Contains(err.Error(), "Downgrade") {
		t.Error(err)
	}
}

// An error names the handle itself if that is in the way.
func TestRWLock_OwnHandleInTheWay(t *testing.T) {
	n := grouptest.Alone(t)
	l := n.RWLock("x")
	mustRLock(t, l)
	_, err := l.TryLock(t.Context())
	grouptest.WantError(t, err, conclave.ErrLocked)
	if !strings.Contains(err.Error(), "held shared by this handle") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := l.Lock(ctx)
		failed <- err
	}()
	grouptest.AwaitWaiters(t, n.FencedLock("x"), 1)
	_, err = l.TryRLock(t.Context())
	grouptest.WantError(t, err, conclave.ErrLocked)
	if !strings.Contains(err.Error(), "another call of this handle waits") {
		t.Error(err)
	}
	cancel()
	err = <-failed
	grouptest.WantError(t, err, context.Canceled)
	if !strings.Contains(err.Error(), "held shared by this handle") {
		t.Error(err)
	}
	grouptest.AwaitWaiters(t, n.FencedLock("x"), 0)
	grouptest.Must(t, l.RUnlock(t.Context()))
	_, err = l.Lock(t.Context())
	grouptest.Must(t, err)
	_, err = l.TryRLock(t.Context())
	grouptest.WantError(t, err, conclave.ErrLocked)
	if !strings.Contains(err.Error(), "held exclusively by this handle") {
		t.Error(err)
	}
}

func TestRWLock_Lockers(t *testing.T) {
	n := grouptest.Alone(t)
	l := n.RWLock("x")
	for _, locker := range []sync.Locker{l.Locker(t.Context()), l.RLocker(t.Context())} {
		locker.Lock()
		if l.Holds() != 1 {
			t.Errorf("%d holds", l.Holds())
		}
		locker.Unlock()
		func() {
			defer func() {
				err, _ := recover().(error)
				grouptest.WantError(t, err, conclave.ErrNotHeld)
			}()
			locker.Unlock()
		}()
	}
}

func TestRWLock_Invalid(t *testing.T) {
	n := grouptest.Alone(t)
	for _, l := range []*conclave.RWLock{n.RWLock(""), n.RWLock("x", conclave.Reentrant(-1))} {
		for name, call := range map[string]func() error{
			"Lock":      func() error { _, err := l.Lock(t.Context()); return err },
			"TryLock":   func() error { _, err := l.TryLock(t.Context()); return err },
			"RLock":     func() error { _, err := l.RLock(t.Context()); return err },
			"TryRLock":  func() error { _, err := l.TryRLock(t.Context()); return err },
			"Downgrade": func() error { _, err := l.Downgrade(t.Context()); return err },
			"Fence":     func() error { _, err := l.Fence(); return err },
			"Info":      func() error { _, err := l.Info(t.Context()); return err },
			"Unlock":    func() error { return l.Unlock(t.Context()) },
			"RUnlock":   func() error { return l.RUnlock(t.Context()) },
		} {
			t.Run(name, func(t *testing.T) { grouptest.WantError(t, call(), conclave.ErrInvalid) })
		}
	}
}

// The session of a handle is that of the Session that has made it.
func TestRWLock_OfSession(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := grouptest.MustSession(t, n, grouptest.Lasting())
		l := s.RWLock("x")
		mustRLock(t, l)
		if info, err := l.Info(t.Context()); err != nil || info.Session != s.ID() {
			t.Errorf("%+v, %v", info, err)
		}
		grouptest.Must(t, s.Close(t.Context()))
		_, err := l.RLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
		grouptest.WantError(t, l.RUnlock(t.Context()), conclave.ErrLockOwnershipLost)
		_, err = l.RLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrSessionExpired)
	})
}

// The calls of both modes are traced, with the fence that a call gives up.
func TestTracer_CallsOfRWLock(t *testing.T) {
	g, recorders := startTraced(t, 1)
	n, ctx := g.Nodes[0], t.Context()
	l := n.RWLock("x")
	for _, row := range []struct {
		call func() error
		want conclave.Operation
		err  error
	}{
		{func() error { _, err := l.Lock(ctx); return err }, conclave.Operation{Kind: conclave.CallLock, Op: "lock"}, nil},
		{func() error { _, err := n.RWLock("x").TryRLock(ctx); return err },
			conclave.Operation{Kind: conclave.CallTryRLock, Op: "try rlock"}, conclave.ErrLocked},
		{func() error { _, err := l.Downgrade(ctx); return err }, conclave.Operation{Kind: conclave.CallDowngrade, Op: "downgrade", Fence: 1}, nil},
		{func() error { _, err := l.RLock(ctx); return err }, conclave.Operation{Kind: conclave.CallRLock, Op: "rlock", Fence: 2}, nil},
		{func() error { return l.RUnlock(ctx) }, conclave.Operation{Kind: conclave.CallRUnlock, Op: "runlock", Fence: 2}, nil},
		{func() error { return l.RUnlock(ctx) }, conclave.Operation{Kind: conclave.CallRUnlock, Op: "runlock", Fence: 2}, nil},
		{func() error { return l.RUnlock(ctx) }, conclave.Operation{Kind: conclave.CallRUnlock, Op: "runlock"}, conclave.ErrNotHeld},
	} {
		row.want.Node, row.want.Name = n.Status().ID, "x"
		err := row.call()
		s := recorders[0].last(t)
		if s.op != row.want || s.ends != 1 || !errors.Is(err, row.err) || !errors.Is(s.err, row.err) {
			t.Errorf("%s returned %v, and its span is %+v; want %+v, %v", row.want.Op, err, s, row.want, row.err)
		}
	}
	// A writer's grant names the release of the last reader.
	mustRLock(t, l)
	waiting := grouptest.StartLock(t, n.FencedLock("x"))
	grouptest.Must(t, l.RUnlock(ctx))
	grouptest.Must(t, <-waiting.Err)
	var release, granted string
	for _, s := range recorders[0].spans {
		switch s.op.Kind {
		case conclave.CallRUnlock:
			release = s.carrier
		case conclave.CallLock: // the events end with its grant
			granted = string(s.events[len(s.events)-1].Cause)
		}
	}
	if release == "" || granted != release {
		t.Errorf("the grant is due to %q, want the release %q", granted, release)
	}
}
