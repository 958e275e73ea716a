package conclave_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Small requests that would fit do not overtake a large one.
func TestSemaphore_FIFO(t *testing.T) {
	n := grouptest.Alone(t)
	s := n.Semaphore("x", 3)
	first := grouptest.MustAcquire(t, s, 2)
	large := grouptest.StartAcquire(t, s, 3)
	small := grouptest.StartAcquire(t, n.Semaphore("x", 3), 1)
	_, err := s.TryAcquire(t.Context(), 1)
	grouptest.WantError(t, err, conclave.ErrLocked)
	if info := grouptest.SemaphoreInfo(t, s); info.Limit != 3 || info.Available != 1 || info.Waiters != 2 || len(info.Holders) != 1 {
		t.Fatalf("%+v", info)
	}
	grouptest.Must(t, first.Release(t.Context()))
	all := large.Granted(t)
	if info := grouptest.SemaphoreInfo(t, s); info.Available != 0 || info.Waiters != 1 || info.Holders[0].Permits != 3 || info.Holders[0].Node != n.Status().ID {
		t.Fatalf("%+v", info)
	}
	f, err := all.Fence()
	if g, e := first.Fence(); f == 0 || err != nil || !errors.Is(e, conclave.ErrNotHeld) {
		t.Fatal(f, err, g, e)
	}
	grouptest.Must(t, all.Release(t.Context()))
	last := small.Granted(t)
	if next, err := last.Fence(); err != nil || next <= f {
		t.Fatalf("fence %v after %v, %v", next, f, err)
	}
	grouptest.Must(t, last.Release(t.Context()))
	grouptest.WantError(t, last.Release(t.Context()), conclave.ErrNotHeld)
}

// Withdrawing a large request lets the small ones behind it proceed.
func TestSemaphore_ContextEndsWhileQueued(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Semaphore("x", 3)
		grouptest.MustAcquire(t, s, 2)
		large, small := grouptest.StartAcquire(t, s, 3), grouptest.StartAcquire(t, s, 1)
		large.Cancel()
		grouptest.WantError(t, <-large.Err, context.Canceled)
		small.Granted(t)
		grouptest.AwaitAcquirers(t, s, 0)
	})
}

func TestSemaphore_Limit(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		two, five := n.Semaphore("x", 2), n.Semaphore("x", 5)
		p := grouptest.MustAcquire(t, two, 2)
		_, err := five.Acquire(t.Context(), 1)
		grouptest.WantError(t, err, conclave.ErrLimitMismatch)
		if !strings.Contains(err.Error(), "2") {
			t.Errorf("%v: the limit in force is not named", err)
		}
		grouptest.Must(t, p.Release(t.Context()))
		if info := grouptest.SemaphoreInfo(t, five); info.Limit != 5 || info.Available != 5 {
			t.Fatalf("an idle semaphore: %+v", info)
		}
		p = grouptest.MustAcquire(t, five, 5) // it was not in use, so it had no limit
		grouptest.Must(t, p.Release(t.Context()))
		grouptest.Must(t, five.Resize(t.Context(), 4))
		_, err = two.TryAcquire(t.Context(), 1)
		grouptest.WantError(t, err, conclave.ErrLimitMismatch)
		grouptest.Must(t, grouptest.MustAcquire(t, five, 4).Release(t.Context()))
		_, err = five.Acquire(t.Context(), 5)
		grouptest.WantError(t, err, conclave.ErrTooLarge)
	})
}

// The limit is again what the users state, once no permit is held.
func TestSemaphore_ResizeUndone(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		four, five := n.Semaphore("x", 4), n.Semaphore("x", 5)
		grouptest.Must(t, four.Resize(t.Context(), 4))
		p, err := four.Acquire(t.Context(), 1)
		grouptest.Must(t, err)
		grouptest.Must(t, five.Resize(t.Context(), 0))
		_, err = five.TryAcquire(t.Context(), 1)
		grouptest.WantError(t, err, conclave.ErrLimitMismatch)
		grouptest.Must(t, p.Release(t.Context()))
		_, err = five.TryAcquire(t.Context(), 5)
		grouptest.Must(t, err)
	})
}

func TestSemaphore_Resize(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Semaphore("x", 2)
		p := grouptest.MustAcquire(t, s, 2)
		more := grouptest.StartAcquire(t, s, 1)
		grouptest.Must(t, s.Resize(t.Context(), 3))
		more.Granted(t)
		large := grouptest.StartAcquire(t, s, 3)
		grouptest.Must(t, s.Resize(t.Context(), 1))
		grouptest.WantError(t, <-large.Err, conclave.ErrLimitMismatch)
		if info := grouptest.SemaphoreInfo(t, s); info.Limit != 1 || info.Available != -2 {
			t.Fatalf("%+v", info)
		}
		next := grouptest.StartAcquire(t, s, 1)
		grouptest.Must(t, p.Release(t.Context())) // one permit is still held, as many as the limit
		if info := grouptest.SemaphoreInfo(t, s); info.Available != 0 || info.Waiters != 1 {
			t.Fatalf("%+v", info)
		}
		grouptest.Must(t, s.Resize(t.Context(), 2))
		next.Granted(t)
	})
}

func TestSemaphore_GroupLimit(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s, other := n.Semaphore("x", conclave.GroupLimit), n.Semaphore("x", conclave.GroupLimit)
		for _, acquire := range []func(context.Context, int) (*conclave.Permit, error){s.Acquire, s.TryAcquire} {
			_, err := acquire(t.Context(), 1)
			grouptest.WantError(t, err, conclave.ErrNoLimit)
		}
		grouptest.Must(t, other.Resize(t.Context(), 2))
		p := grouptest.MustAcquire(t, s, 2)
		_, err := s.TryAcquire(t.Context(), 1)
		grouptest.WantError(t, err, conclave.ErrLocked)
		_, err = s.Acquire(t.Context(), 3)
		grouptest.WantError(t, err, conclave.ErrTooLarge)

		grouptest.Must(t, n.Semaphore("x", 9).Resize(t.Context(), 5)) // the handles follow
		grouptest.MustAcquire(t, s, 3)
		waiting := grouptest.StartAcquire(t, other, 2)
		grouptest.Must(t, other.Resize(t.Context(), 1))
		grouptest.WantError(t, <-waiting.Err, conclave.ErrTooLarge)
		waiting = grouptest.StartAcquire(t, s, 1)
		grouptest.Must(t, other.Resize(t.Context(), 6))
		waiting.Granted(t)

		grouptest.Must(t, p.Release(t.Context()))
		grouptest.Must(t, s.Resize(t.Context(), 0))
		grouptest.MustAcquire(t, other, 1)
		_, err = n.Semaphore("x", -1).Acquire(t.Context(), 1)
		grouptest.WantError(t, err, conclave.ErrInvalid)
	})
}

// A semaphore that another handle uses has a limit, also before any Resize, and for as long as that.
func TestSemaphore_GroupLimitOfUsers(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Semaphore("x", conclave.GroupLimit)
		for limit := 2; limit < 4; limit++ {
			user := grouptest.MustAcquire(t, n.Semaphore("x", limit), 1)
			if info := grouptest.SemaphoreInfo(t, s); info.Limit != limit {
				t.Errorf("%+v", info)
			}
			p := grouptest.MustAcquire(t, s, 1)
			grouptest.Must(t, user.Release(t.Context()))
			more := grouptest.MustAcquire(t, s, 1) // its other permit uses the semaphore
			grouptest.Must(t, p.Release(t.Context()))
			grouptest.Must(t, more.Release(t.Context()))
			_, err := s.TryAcquire(t.Context(), 1)
			grouptest.WantError(t, err, conclave.ErrNoLimit)
			if info := grouptest.SemaphoreInfo(t, s); info.Limit != 0 {
				t.Errorf("without users: %+v", info)
			}
		}
		if info := grouptest.SemaphoreInfo(t, n.Semaphore("y", conclave.GroupLimit)); info.Limit != 0 || info.Available != 0 {
			t.Errorf("%+v", info)
		}
	})
}

// After a Resize to 0 a handle that has read the limit goes on with it, until it finds another one.
func TestSemaphore_GroupLimitUndone(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s, later := n.Semaphore("x", conclave.GroupLimit), n.Semaphore("x", conclave.GroupLimit)
		grouptest.Must(t, s.Resize(t.Context(), 2))
		grouptest.Must(t, grouptest.MustAcquire(t, s, 1).Release(t.Context()))
		grouptest.Must(t, s.Resize(t.Context(), 0))
		_, err := later.Acquire(t.Context(), 1)
		grouptest.WantError(t, err, conclave.ErrNoLimit)
		p := grouptest.MustAcquire(t, s, 1)
		if info := grouptest.SemaphoreInfo(t, later); info.Limit != 2 {
			t.Errorf("%+v", info)
		}
		grouptest.Must(t, p.Release(t.Context()))

		user := grouptest.MustAcquire(t, n.Semaphore("x", 9), 1)
		p = grouptest.MustAcquire(t, s, 1)
		grouptest.Must(t, user.Release(t.Context()))
		grouptest.Must(t, p.Release(t.Context()))
		_, err = s.Acquire(t.Context(), 1)
		grouptest.WantError(t, err, conclave.ErrNoLimit)
	})
}

func TestSemaphore_InvalidArguments(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		tooMany := int64(1) << 31 // negative where int has 32 bits
		for _, c := range []struct {
			name     string
			limit, n int
			want     error
		}{
			{"", 1, 1, conclave.ErrInvalid},
			{strings.Repeat("x", 513), 1, 1, conclave.ErrTooLarge},
			{"x", 0, 1, conclave.ErrInvalid},
			{"x", -1, 1, conclave.ErrInvalid},
			{"x", int(tooMany), 1, conclave.ErrInvalid},
			{"x", 2, 0, conclave.ErrInvalid},
			{"x", 2, -1, conclave.ErrInvalid},
			{"x", 2, 3, conclave.ErrTooLarge},
		} {
			s := n.Semaphore(c.name, c.limit)
			_, err := s.Acquire(t.Context(), c.n)
			grouptest.WantError(t, err, c.want)
			_, err = s.TryAcquire(t.Context(), c.n)
			grouptest.WantError(t, err, c.want)
		}
		grouptest.WantError(t, n.Semaphore("x", 1).Resize(t.Context(), -1), conclave.ErrInvalid)
		_, err := n.Semaphore("x", 0).Info(t.Context())
		grouptest.WantError(t, err, conclave.ErrInvalid)
		_, err = n.Semaphore("x", 1).Acquire(grouptest.Expired(), 1)
		grouptest.WantError(t, err, context.Canceled)
		grouptest.MustAcquire(t, n.Semaphore("largest", 1<<31-1), 1<<31-1)
	})
}

// Permits are lost with their session and available again after its lock-delay.
func TestPermit_SessionClosedByForce(t *testing.T) {
	t.Parallel()
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		session := grouptest.MustSession(t, n, &conclave.SessionConfig{LockDelay: time.Second})
		p := grouptest.MustAcquire(t, session.Semaphore("x", 2), 2)
		waiting := grouptest.StartAcquire(t, session.Semaphore("x", 2), 1)
		s := n.Semaphore("x", 2)
		grouptest.Must(t, n.CloseSession(t.Context(), session.ID()))
		<-p.Lost()
		grouptest.WantError(t, <-waiting.Err, conclave.ErrSessionExpired)
		_, err := p.Fence()
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
		grouptest.WantError(t, p.Release(t.Context()), conclave.ErrLockOwnershipLost)
		grouptest.WantError(t, p.Release(t.Context()), conclave.ErrNotHeld)
		if _, err := s.TryAcquire(t.Context(), 1); err != nil {
			grouptest.WantError(t, err, conclave.ErrLockDelay)
		}
		grouptest.MustAcquire(t, s, 2)
	})
}

// A handle of the node continues with the node's next session.
func TestSemaphore_NextSessionOfNode(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Semaphore("x", 1)
		p := grouptest.MustAcquire(t, s, 1)
		grouptest.Must(t, n.CloseSession(t.Context(), grouptest.OwnSession(t, n)))
		<-p.Lost()
		grouptest.MustAcquire(t, s, 1)
	})
}

func TestPermit_ReleaseContextEndedBefore(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Semaphore("x", 1)
		for range 50 {
			p := grouptest.MustAcquire(t, s, 1)
			if err := p.Release(grouptest.Expired()); err != nil {
				grouptest.WantError(t, err, conclave.ErrUnknown)
				grouptest.WantError(t, err, context.Canceled)
			}
		}
		grouptest.Must(t, grouptest.MustAcquire(t, s, 1).Release(t.Context()))
	})
}

// Calls of Resize on one handle leave it with the limit of the last one in the group.
func TestResize_AtTheSameTime(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := n.Semaphore("x", 1)
		for range 200 {
			var all sync.WaitGroup
			for limit := range 4 {
				all.Go(func() { grouptest.Must(t, s.Resize(t.Context(), limit+1)) })
			}
			all.Wait()
			p, err := s.TryAcquire(t.Context(), 1)
			grouptest.Must(t, err)
			grouptest.Must(t, p.Release(t.Context()))
		}
	})
}
