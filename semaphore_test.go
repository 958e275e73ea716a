package conclave

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func mustTake(t testing.TB, s *Semaphore, n int) *Permit {
	t.Helper()
	p, err := s.Acquire(within(t, 20*time.Second), n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// awaitAcquirers blocks until so many wait for permits.
func awaitAcquirers(t *testing.T, s *Semaphore, n int) {
	t.Helper()
	for mustSemaphore(t, s).Waiters != n {
	}
}

func mustSemaphore(t testing.TB, s *Semaphore) SemaphoreInfo {
	t.Helper()
	info, err := s.Info(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// acquiring is an Acquire that waits.
type acquiring struct {
	cancel context.CancelFunc
	permit chan *Permit
	err    chan error
}

func startAcquire(t *testing.T, s *Semaphore, n int) *acquiring {
	t.Helper()
	waiters := mustSemaphore(t, s).Waiters
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	a := &acquiring{cancel: cancel, permit: make(chan *Permit, 1), err: make(chan error, 1)}
	go func() {
		if p, err := s.Acquire(ctx, n); err == nil {
			a.permit <- p
		} else {
			a.err <- err
		}
	}()
	awaitAcquirers(t, s, waiters+1)
	return a
}

func (a *acquiring) granted(t *testing.T) *Permit {
	t.Helper()
	select {
	case p := <-a.permit:
		return p
	case err := <-a.err:
		t.Fatal(err)
		return nil
	}
}

// A large request is not overtaken by small ones, for which there would be room.
func TestSemaphoreServesInOrder(t *testing.T) {
	n := alone(t)
	s := n.Semaphore("x", 3)
	first := mustTake(t, s, 2)
	large := startAcquire(t, s, 3)
	small := startAcquire(t, n.Semaphore("x", 3), 1)
	_, err := s.TryAcquire(t.Context(), 1)
	wantError(t, err, ErrLocked)
	if info := mustSemaphore(t, s); info.Limit != 3 || info.Available != 1 || info.Waiters != 2 || len(info.Holders) != 1 {
		t.Fatalf("%+v", info)
	}
	must(t, first.Release(t.Context()))
	all := large.granted(t)
	if info := mustSemaphore(t, s); info.Available != 0 || info.Waiters != 1 || info.Holders[0].Permits != 3 || info.Holders[0].Node != n.id {
		t.Fatalf("%+v", info)
	}
	f, err := all.Fence()
	if g, e := first.Fence(); f == 0 || err != nil || !errors.Is(e, ErrNotHeld) {
		t.Fatal(f, err, g, e)
	}
	must(t, all.Release(t.Context()))
	last := small.granted(t)
	if next, err := last.Fence(); err != nil || next <= f {
		t.Fatalf("fence %v after %v, %v", next, f, err)
	}
	must(t, last.Release(t.Context()))
	wantError(t, last.Release(t.Context()), ErrNotHeld)
}

// A waiter that leaves does not hold up those behind it.
func TestSemaphoreWaiterLeaves(t *testing.T) {
	n := alone(t)
	s := n.Semaphore("x", 3)
	mustTake(t, s, 2)
	large, small := startAcquire(t, s, 3), startAcquire(t, s, 1)
	large.cancel()
	wantError(t, <-large.err, context.Canceled)
	small.granted(t)
	awaitAcquirers(t, s, 0)
}

func TestSemaphoreLimit(t *testing.T) {
	n := alone(t)
	two, five := n.Semaphore("x", 2), n.Semaphore("x", 5)
	p := mustTake(t, two, 2)
	_, err := five.Acquire(t.Context(), 1)
	wantError(t, err, ErrLimitMismatch)
	if !strings.Contains(err.Error(), "2") {
		t.Errorf("%v: the limit in force is not named", err)
	}
	must(t, p.Release(t.Context()))
	if info := mustSemaphore(t, five); info.Limit != 5 || info.Available != 5 {
		t.Fatalf("an idle semaphore: %+v", info)
	}
	p = mustTake(t, five, 5) // nobody used it, so nobody had to agree
	must(t, p.Release(t.Context()))
	must(t, five.Resize(t.Context(), 4))
	_, err = two.TryAcquire(t.Context(), 1)
	wantError(t, err, ErrLimitMismatch)
	must(t, mustTake(t, five, 4).Release(t.Context()))
	_, err = five.Acquire(t.Context(), 5)
	wantError(t, err, ErrTooLarge)
}

func TestSemaphoreResize(t *testing.T) {
	n := alone(t)
	s := n.Semaphore("x", 2)
	p := mustTake(t, s, 2)
	more := startAcquire(t, s, 1)
	must(t, s.Resize(t.Context(), 3))
	more.granted(t)
	large := startAcquire(t, s, 3)
	must(t, s.Resize(t.Context(), 1))
	wantError(t, <-large.err, ErrLimitMismatch)
	if info := mustSemaphore(t, s); info.Limit != 1 || info.Available != -2 {
		t.Fatalf("%+v", info)
	}
	next := startAcquire(t, s, 1)
	must(t, p.Release(t.Context())) // one is out still, as many as the limit
	if info := mustSemaphore(t, s); info.Available != 0 || info.Waiters != 1 {
		t.Fatalf("%+v", info)
	}
	must(t, s.Resize(t.Context(), 2))
	next.granted(t)
}

func TestSemaphoreArguments(t *testing.T) {
	n := alone(t)
	for _, c := range []struct {
		name     string
		limit, n int
		want     error
	}{
		{"", 1, 1, ErrInvalid},
		{strings.Repeat("x", 513), 1, 1, ErrTooLarge},
		{"x", 0, 1, ErrInvalid},
		{"x", -1, 1, ErrInvalid},
		{"x", 1 << 31, 1, ErrInvalid},
		{"x", 2, 0, ErrInvalid},
		{"x", 2, -1, ErrInvalid},
		{"x", 2, 3, ErrTooLarge},
	} {
		s := n.Semaphore(c.name, c.limit)
		_, err := s.Acquire(t.Context(), c.n)
		wantError(t, err, c.want)
		_, err = s.TryAcquire(t.Context(), c.n)
		wantError(t, err, c.want)
	}
	wantError(t, n.Semaphore("x", 1).Resize(t.Context(), 0), ErrInvalid)
	_, err := n.Semaphore("x", 0).Info(t.Context())
	wantError(t, err, ErrInvalid)
	_, err = n.Semaphore("x", 1).Acquire(expired, 1)
	wantError(t, err, context.Canceled)
	mustTake(t, n.Semaphore("largest", 1<<31-1), 1<<31-1)
}

// Permits are lost with their session, and come back after its lock-delay.
func TestPermitIsLostWithItsSession(t *testing.T) {
	n := alone(t)
	session := mustSession(t, n, &SessionConfig{LockDelay: time.Second})
	p := mustTake(t, session.Semaphore("x", 2), 2)
	waiting := startAcquire(t, session.Semaphore("x", 2), 1)
	s := n.Semaphore("x", 2)
	must(t, n.CloseSession(t.Context(), session.ID()))
	<-p.Lost()
	wantError(t, <-waiting.err, ErrSessionExpired)
	_, err := p.Fence()
	wantError(t, err, ErrLockOwnershipLost)
	wantError(t, p.Release(t.Context()), ErrLockOwnershipLost)
	wantError(t, p.Release(t.Context()), ErrNotHeld)
	if _, err := s.TryAcquire(t.Context(), 1); err != nil {
		wantError(t, err, ErrLockDelay)
	}
	mustTake(t, s, 2)
}

// A handle of the node's goes on with the node's next session.
func TestSemaphoreOutlivesTheNodesSession(t *testing.T) {
	n := alone(t)
	s := n.Semaphore("x", 1)
	p := mustTake(t, s, 1)
	must(t, n.CloseSession(t.Context(), n.own.ID()))
	<-p.Lost()
	mustTake(t, s, 1)
}

func TestPermitReleaseIsPursuedWithoutItsContext(t *testing.T) {
	n := alone(t)
	s := n.Semaphore("x", 1)
	for range 50 {
		p := mustTake(t, s, 1)
		if err := p.Release(expired); err != nil {
			wantError(t, err, ErrUnknown)
			wantError(t, err, context.Canceled)
		}
	}
	must(t, mustTake(t, s, 1).Release(t.Context()))
}

// Never more are out than the limit, whoever comes and goes.
func TestSemaphoreBound(t *testing.T) {
	g := group(t, 3, nil)
	const limit = 5
	var out, most atomic.Int64
	var users sync.WaitGroup
	ctx := within(t, 60*time.Second)
	for i := range 24 {
		s := g.nodes[i%3].Semaphore("x", limit)
		weight := i%3 + 1
		users.Go(func() {
			for round := range 12 {
				hurry, cancel := ctx, context.CancelFunc(func() {})
				if round%4 == 3 {
					hurry, cancel = context.WithTimeout(ctx, 2*time.Millisecond)
				}
				p, err := s.Acquire(hurry, weight)
				cancel()
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
						t.Error(err)
					}
					continue
				}
				now := out.Add(int64(weight))
				most.Store(max(most.Load(), now))
				if now > limit {
					t.Errorf("%d permits of %d are out", now, limit)
				}
				out.Add(int64(-weight))
				if err := p.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	mustTake(t, g.nodes[0].Semaphore("x", limit), limit) // what was left is given back
}
