package conclave

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// One member, in memory: every row of the table of DESIGN 4.5 as its user sees it.
func alone(t *testing.T) *Node {
	t.Helper()
	n, err := Open(within(t, 20*time.Second), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(expired) })
	return n
}

func mustLock(t testing.TB, l *FencedLock) Fence {
	t.Helper()
	f, err := l.Lock(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func mustUnlock(t testing.TB, l *FencedLock) {
	t.Helper()
	if err := l.Unlock(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	var e *Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		t.Fatalf("error is %v; want an *Error that wraps %q", err, want)
	}
}

// awaitWaiters blocks until so many wait for the lock.
func awaitWaiters(t *testing.T, l *FencedLock, n int) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	for {
		info, err := l.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info.Waiters == n {
			return
		}
	}
}

func TestLockExcludesAndFences(t *testing.T) {
	n := alone(t)
	a, b := n.FencedLock("x"), n.FencedLock("x")
	first := mustLock(t, a)
	if _, err := b.TryLock(t.Context()); !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
	if got, err := a.Fence(); got != first || err != nil {
		t.Fatal(got, err)
	}
	info, err := b.Info(t.Context())
	if err != nil || !info.Held || info.Fence != first || info.Node != n.Status().ID || info.Holds != 1 {
		t.Fatalf("%+v %v", info, err)
	}
	mustUnlock(t, a)
	second, err := b.TryLock(t.Context())
	if err != nil || second <= first {
		t.Fatalf("fence %v after %v, %v", second, first, err)
	}
	_, err = a.Fence()
	wantError(t, err, ErrNotHeld)
	wantError(t, a.Unlock(t.Context()), ErrNotHeld)
	mustUnlock(t, b)
	if list, err := n.Locks(t.Context(), ""); len(list) != 0 || err != nil {
		t.Fatalf("idle names are kept: %v %v", list, err)
	}
}

func TestWaitersAreServedInOrder(t *testing.T) {
	n := alone(t)
	holder := n.FencedLock("x")
	mustLock(t, holder)
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
		awaitWaiters(t, holder, i+1)
	}
	mustUnlock(t, holder)
	wg.Wait()
	for i, got := range order {
		if i != got {
			t.Fatalf("served in the order %v", order)
		}
	}
}

func TestReentrantHandle(t *testing.T) {
	n := alone(t)
	l := n.FencedLock("x", Reentrant(2))
	f := mustLock(t, l)
	if again := mustLock(t, l); again != f {
		t.Fatalf("fence %v, then %v", f, again)
	}
	_, err := l.Lock(t.Context())
	wantError(t, err, ErrAcquireLimitReached)
	if l.Holds() != 2 {
		t.Fatal(l.Holds())
	}
	mustUnlock(t, l)
	if got, err := l.Fence(); got != f || err != nil {
		t.Fatal(got, err)
	}
	mustUnlock(t, l)
	if f2 := mustLock(t, l); f2 <= f {
		t.Fatalf("fence %v after %v", f2, f)
	}
	unlimited := n.FencedLock("y", Reentrant(0))
	for range 10 {
		mustLock(t, unlimited)
	}
	if unlimited.Holds() != 10 {
		t.Fatal(unlimited.Holds())
	}
}

// 64 goroutines on one handle exclude one another, and so do two handles of one
// node (etcd#11360).
func TestGoroutinesOnOneHandleExcludeOneAnother(t *testing.T) {
	for name, handles := range map[string]int{"one handle": 1, "two handles": 2} {
		t.Run(name, func(t *testing.T) {
			n := alone(t)
			locks := make([]*FencedLock, handles)
			for i := range locks {
				locks[i] = n.FencedLock("x")
			}
			var inside atomic.Int32
			var last Fence
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
							t.Error("two inside")
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

// The hold is lost with the session. Until each Unlock that is owed was called
// the handle refuses, also if nobody else took the lock.
func TestLossIsToldUntilEveryHoldIsGivenBack(t *testing.T) {
	n := alone(t)
	l := n.FencedLock("x", Reentrant(0))
	f := mustLock(t, l)
	mustLock(t, l)
	lost := l.Lost()
	sessions, err := n.Sessions(t.Context())
	if err != nil || len(sessions) != 1 {
		t.Fatal(sessions, err)
	}
	if err := n.CloseSession(t.Context(), sessions[0].ID); err != nil {
		t.Fatal(err)
	}
	<-lost
	_, err = l.Fence()
	wantError(t, err, ErrLockOwnershipLost)
	_, err = l.Lock(t.Context())
	wantError(t, err, ErrLockOwnershipLost)
	_, err = l.TryLock(t.Context())
	wantError(t, err, ErrLockOwnershipLost)
	wantError(t, l.Unlock(t.Context()), ErrLockOwnershipLost)
	_, err = l.Lock(t.Context())
	wantError(t, err, ErrLockOwnershipLost)
	wantError(t, l.Unlock(t.Context()), ErrLockOwnershipLost)
	wantError(t, l.Unlock(t.Context()), ErrNotHeld)
	if again := mustLock(t, l); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
	wantError(t, n.CloseSession(t.Context(), sessions[0].ID), ErrSessionNotFound)
}

// A waiter does not outlive its session (etcd#19597), and its handle works with
// the node's next one.
func TestSessionEndsWhileWaiting(t *testing.T) {
	n := alone(t)
	a, b := n.FencedLock("x"), n.FencedLock("x")
	mustLock(t, a)
	failed := make(chan error, 1)
	go func() {
		_, err := b.Lock(t.Context())
		failed <- err
	}()
	awaitWaiters(t, a, 1)
	if err := n.CloseSession(t.Context(), n.own.ID()); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-failed, ErrSessionExpired)
	mustLock(t, b)
}

func TestContextEndsWhileWaiting(t *testing.T) {
	n := alone(t)
	a, b := n.FencedLock("x"), n.FencedLock("x")
	mustLock(t, a)
	cause := errors.New("no more patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := b.Lock(ctx)
		failed <- err
	}()
	awaitWaiters(t, a, 1)
	cancel(cause)
	err := <-failed
	wantError(t, err, context.Canceled)
	wantError(t, err, cause)
	awaitWaiters(t, a, 0)
	mustUnlock(t, a)
	mustLock(t, b)
}

func TestEndedContextQueuesNothing(t *testing.T) {
	n := alone(t)
	l := n.FencedLock("x")
	_, err := l.Lock(expired)
	wantError(t, err, context.Canceled)
	if errors.Is(err, ErrUnavailable) {
		t.Errorf("%v: nobody has looked for a majority", err)
	}
	if info, err := l.Info(t.Context()); info.Held || err != nil {
		t.Fatal(info, err)
	}
}

// The release goes out although the caller's context has ended (blnk#354).
func TestUnlockIsPursuedWithoutItsContext(t *testing.T) {
	n := alone(t)
	a, b := n.FencedLock("x"), n.FencedLock("x")
	for range 100 {
		mustLock(t, a)
		if err := a.Unlock(expired); err != nil {
			wantError(t, err, context.Canceled)
			wantError(t, err, ErrUnknown)
		}
		_, err := a.Fence()
		wantError(t, err, ErrNotHeld)
		mustLock(t, b)
		mustUnlock(t, b)
	}
}

func TestDo(t *testing.T) {
	n := alone(t)
	l := n.FencedLock("x")
	mine := errors.New("mine")
	if err := l.Do(t.Context(), func(context.Context) error { return mine }); !errors.Is(err, mine) {
		t.Fatal(err)
	}
	err := l.Do(t.Context(), func(ctx context.Context) error {
		if err := n.CloseSession(t.Context(), n.own.ID()); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, ErrLockOwnershipLost) {
		t.Fatal(err)
	}
	mustLock(t, l)
	mustUnlock(t, l)
}

func TestLocker(t *testing.T) {
	n := alone(t)
	handle := n.FencedLock("x")
	l := handle.Locker(t.Context())
	l.Lock()
	if handle.Holds() != 1 {
		t.Fatal(handle.Holds())
	}
	l.Unlock()
	defer func() {
		err, _ := recover().(error)
		wantError(t, err, ErrNotHeld)
	}()
	l.Unlock()
}

func TestUseAfterClose(t *testing.T) {
	n := alone(t)
	l := n.FencedLock("x")
	mustLock(t, l)
	lost := l.Lost()
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-lost
	_, err := l.Fence()
	wantError(t, err, ErrLockOwnershipLost)
	wantError(t, l.Unlock(t.Context()), ErrLockOwnershipLost)
	_, err = l.Lock(t.Context())
	wantError(t, err, ErrClosed)
	_, err = l.Info(t.Context())
	wantError(t, err, ErrClosed)
	_, err = n.Sessions(t.Context())
	wantError(t, err, ErrClosed)
	wantError(t, n.Err(), ErrClosed)
	n.Status()
}

func TestNames(t *testing.T) {
	n := alone(t)
	long := make([]byte, 513)
	for i := range long {
		long[i] = 'x'
	}
	for name, want := range map[string]error{
		"": ErrInvalid, string(long): ErrTooLarge, "a\x00b": ErrInvalid, "a\xffb": ErrInvalid,
	} {
		l := n.FencedLock(name)
		_, err := l.Lock(t.Context())
		wantError(t, err, want)
		wantError(t, l.Unlock(t.Context()), want)
		_, err = l.Info(t.Context())
		wantError(t, err, want)
	}
	_, err := n.FencedLock("x", Reentrant(-1)).Lock(t.Context())
	wantError(t, err, ErrInvalid)
	mustLock(t, n.FencedLock(string(long[:512])))
}

func TestGuard(t *testing.T) {
	var g Guard
	for _, step := range []struct {
		name string
		f    Fence
		want error
	}{
		{"a", 5, nil}, {"a", 5, nil}, {"a", 4, ErrStaleFence}, {"b", 1, nil}, {"a", 6, nil}, {"a", 5, ErrStaleFence}, {"a", 0, ErrInvalid},
	} {
		if err := g.Check(step.name, step.f); !errors.Is(err, step.want) {
			t.Fatalf("%+v: %v", step, err)
		}
	}
}
