package conclave_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestLock_ExcludesAndFences(t *testing.T) {
	n := grouptest.Alone(t)
	a, b := n.FencedLock("x"), n.FencedLock("x")
	first := grouptest.MustLock(t, a)
	if _, err := b.TryLock(t.Context()); !errors.Is(err, conclave.ErrLocked) {
		t.Fatal(err)
	}
	if got, err := a.Fence(); got != first || err != nil {
		t.Fatal(got, err)
	}
	info, err := b.Info(t.Context())
	if err != nil || !info.Held || info.Fence != first || info.Node != n.Status().ID || info.Holds != 1 {
		t.Fatalf("%+v %v", info, err)
	}
	grouptest.MustUnlock(t, a)
	second, err := b.TryLock(t.Context())
	if err != nil || second <= first {
		t.Fatalf("fence %v after %v, %v", second, first, err)
	}
	_, err = a.Fence()
	grouptest.WantError(t, err, conclave.ErrNotHeld)
	grouptest.WantError(t, a.Unlock(t.Context()), conclave.ErrNotHeld)
	grouptest.MustUnlock(t, b)
	if list, err := grouptest.Collect(n.Locks(t.Context(), "")); len(list) != 0 || err != nil {
		t.Fatalf("idle locks are listed: %v, %v", list, err)
	}
}

func TestLock_FIFO(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		holder := n.FencedLock("x")
		grouptest.MustLock(t, holder)
		const waiters = 20
		var order []int
		var wg sync.WaitGroup
		for i := range waiters {
			l := n.FencedLock("x")
			wg.Go(func() {
				if _, err := l.Lock(t.Context()); err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // under the lock that is being tested
				if err := l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
			grouptest.AwaitWaiters(t, holder, i+1)
		}
		grouptest.MustUnlock(t, holder)
		wg.Wait()
		for i, got := range order {
			if i != got {
				t.Fatalf("granted in the order %v", order)
			}
		}
	})
}

func TestLock_Reentrant(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		l := n.FencedLock("x", conclave.Reentrant(2))
		f := grouptest.MustLock(t, l)
		if again := grouptest.MustLock(t, l); again != f {
			t.Fatalf("fence %v, then %v", f, again)
		}
		_, err := l.Lock(t.Context())
		grouptest.WantError(t, err, conclave.ErrAcquireLimitReached)
		if l.Holds() != 2 {
			t.Fatal(l.Holds())
		}
		grouptest.MustUnlock(t, l)
		if got, err := l.Fence(); got != f || err != nil {
			t.Fatal(got, err)
		}
		grouptest.MustUnlock(t, l)
		if f2 := grouptest.MustLock(t, l); f2 <= f {
			t.Fatalf("fence %v after %v", f2, f)
		}
		unlimited := n.FencedLock("y", conclave.Reentrant(0))
		for range 10 {
			grouptest.MustLock(t, unlimited)
		}
		if unlimited.Holds() != 10 {
			t.Fatal(unlimited.Holds())
		}
	})
}

// Goroutines on one handle exclude one another, and so do two handles of one node
// (etcd#11360).
func TestLock_GoroutinesOfOneNode(t *testing.T) {
	for name, handles := range map[string]int{"one handle": 1, "two handles": 2} {
		t.Run(name, func(t *testing.T) {
			n := grouptest.Alone(t)
			locks := make([]*conclave.FencedLock, handles)
			for i := range locks {
				locks[i] = n.FencedLock("x")
			}
			var inside atomic.Int32
			var last conclave.Fence
			var wg sync.WaitGroup
			for i := range 64 {
				l := locks[i%handles]
				wg.Go(func() {
					for range 10 {
						f, err := l.Lock(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						if inside.Add(1) != 1 {
							t.Error("two goroutines hold the lock")
						}
						if f <= last {
							t.Errorf("fence %v after %v", f, last)
						}
						last = f
						inside.Add(-1)
						if err := l.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// After a loss the handle refuses until each Unlock owed was called, also if no other
// owner took the lock.
func TestLock_RefusedUntilUnlocksOwedAfterLoss(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		l := n.FencedLock("x", conclave.Reentrant(0))
		f := grouptest.MustLock(t, l)
		grouptest.MustLock(t, l)
		lost := l.Lost()
		sessions, err := grouptest.Collect(n.Sessions(t.Context()))
		if err != nil || len(sessions) != 1 {
			t.Fatal(sessions, err)
		}
		if err := n.CloseSession(t.Context(), sessions[0].ID); err != nil {
			t.Fatal(err)
		}
		<-lost
		_, err = l.Fence()
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
		_, err = l.Lock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
		_, err = l.TryLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
		grouptest.WantError(t, l.Unlock(t.Context()), conclave.ErrLockOwnershipLost)
		_, err = l.Lock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
		grouptest.WantError(t, l.Unlock(t.Context()), conclave.ErrLockOwnershipLost)
		grouptest.WantError(t, l.Unlock(t.Context()), conclave.ErrNotHeld)
		if again := grouptest.MustLock(t, l); again <= f {
			t.Fatalf("fence %v after %v", again, f)
		}
		grouptest.WantError(t, n.CloseSession(t.Context(), sessions[0].ID), conclave.ErrSessionNotFound)
	})
}

// A waiter ends with its session (etcd#19597).
func TestLock_SessionExpiredWhileQueued(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := grouptest.MustSession(t, n, nil)
		grouptest.MustLock(t, n.FencedLock("x"))
		waiting := grouptest.StartLock(t, s.FencedLock("x"))
		grouptest.Must(t, n.CloseSession(t.Context(), s.ID()))
		grouptest.WantError(t, <-waiting.Err, conclave.ErrSessionExpired)
	})
}

// A handle of the node's own session that holds nothing waits on under the node's next
// session.
func TestLock_OwnSessionExpiredWhileQueued(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		holder := grouptest.MustSession(t, n, grouptest.Lasting())
		held := holder.FencedLock("x")
		grouptest.MustLock(t, held)
		grouptest.MustLock(t, n.FencedLock("y"))
		var own conclave.SessionID
		for s, err := range n.Sessions(t.Context()) {
			grouptest.Must(t, err)
			if s.ID != holder.ID() {
				own = s.ID
			}
		}
		l := n.FencedLock("x")
		waiting := grouptest.StartLock(t, l)
		grouptest.Must(t, n.CloseSession(t.Context(), own))
		grouptest.AwaitWaiters(t, l, 1)
		grouptest.MustUnlock(t, held)
		grouptest.Must(t, <-waiting.Err)
		if l.Holds() != 1 {
			t.Errorf("%d holds, want 1", l.Holds())
		}
	})
}

func TestLock_ContextEndsWhileQueued(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		a, b := n.FencedLock("x"), n.FencedLock("x")
		grouptest.MustLock(t, a)
		cause := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := b.Lock(ctx)
			failed <- err
		}()
		grouptest.AwaitWaiters(t, a, 1)
		cancel(cause)
		err := <-failed
		grouptest.WantError(t, err, context.Canceled)
		grouptest.WantError(t, err, cause)
		grouptest.AwaitWaiters(t, a, 0)
		grouptest.MustUnlock(t, a)
		grouptest.MustLock(t, b)
	})
}

func TestLock_ContextEndedBefore(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		l := n.FencedLock("x")
		_, err := l.Lock(grouptest.Expired())
		grouptest.WantError(t, err, context.Canceled)
		if errors.Is(err, conclave.ErrUnavailable) {
			t.Errorf("%v: the call did not look for a quorum", err)
		}
		if info, err := l.Info(t.Context()); info.Held || err != nil {
			t.Fatal(info, err)
		}
	})
}

// The release is sent although the context has ended (blnk#354).
func TestUnlock_ContextEndedBefore(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		a, b := n.FencedLock("x"), n.FencedLock("x")
		for range 100 {
			grouptest.MustLock(t, a)
			if err := a.Unlock(grouptest.Expired()); err != nil {
				grouptest.WantError(t, err, context.Canceled)
				grouptest.WantError(t, err, conclave.ErrUnknown)
			}
			_, err := a.Fence()
			grouptest.WantError(t, err, conclave.ErrNotHeld)
			grouptest.MustLock(t, b)
			grouptest.MustUnlock(t, b)
		}
	})
}

func TestLock_Do(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		l := n.FencedLock("x")
		mine := errors.New("mine")
		if err := l.Do(t.Context(), func(context.Context, conclave.Fence) error { return mine }); err != mine { //nolint:errorlint // as it is
			t.Fatal(err)
		}
		err := l.Do(t.Context(), func(ctx context.Context, _ conclave.Fence) error {
			if err := n.CloseSession(t.Context(), grouptest.OwnSession(t, n)); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, conclave.ErrLockOwnershipLost) {
			t.Fatal(err)
		}
		grouptest.MustLock(t, l)
		grouptest.MustUnlock(t, l)
	})
}

func TestLocker(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		handle := n.FencedLock("x")
		l := handle.Locker(t.Context())
		l.Lock()
		if handle.Holds() != 1 {
			t.Fatal(handle.Holds())
		}
		l.Unlock()
		defer func() {
			err, _ := recover().(error)
			grouptest.WantError(t, err, conclave.ErrNotHeld)
		}()
		l.Unlock()
	})
}

func TestLock_AfterClose(t *testing.T) {
	n := grouptest.Alone(t)
	l := n.FencedLock("x")
	grouptest.MustLock(t, l)
	lost := l.Lost()
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-lost
	_, err := l.Fence()
	grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
	grouptest.WantError(t, l.Unlock(t.Context()), conclave.ErrLockOwnershipLost)
	_, err = l.Lock(t.Context())
	grouptest.WantError(t, err, conclave.ErrClosed)
	_, err = l.Info(t.Context())
	grouptest.WantError(t, err, conclave.ErrClosed)
	_, err = grouptest.Collect(n.Sessions(t.Context()))
	grouptest.WantError(t, err, conclave.ErrClosed)
	grouptest.WantError(t, n.Err(), conclave.ErrClosed)
	n.Status()
}

func TestLock_InvalidName(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		long := make([]byte, 513)
		for i := range long {
			long[i] = 'x'
		}
		for name, want := range map[string]error{
			"": conclave.ErrInvalid, string(long): conclave.ErrTooLarge, "a\x00b": conclave.ErrInvalid, "a\xffb": conclave.ErrInvalid,
		} {
			l := n.FencedLock(name)
			_, err := l.Lock(t.Context())
			grouptest.WantError(t, err, want)
			grouptest.WantError(t, l.Unlock(t.Context()), want)
			_, err = l.Info(t.Context())
			grouptest.WantError(t, err, want)
		}
		_, err := n.FencedLock("x", conclave.Reentrant(-1)).Lock(t.Context())
		grouptest.WantError(t, err, conclave.ErrInvalid)
		grouptest.MustLock(t, n.FencedLock(string(long[:512])))
	})
}

func TestLocker_UnlockAfterContextEnded(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		ctx, cancel := context.WithCancel(t.Context())
		l := n.FencedLock("x")
		l.Locker(ctx).Lock()
		cancel()
		l.Locker(ctx).Unlock()
		grouptest.MustLock(t, n.FencedLock("x"))
	})
}
