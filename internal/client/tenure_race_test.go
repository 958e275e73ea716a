package client

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Calls of several goroutines that meet in a tenure.

// lockOf returns a handle of a lease; nil: the client's own.
func lockOf(c *Client, lease *Lease, linger time.Duration, reentrant bool) *Lock {
	k := new(Lock)
	k.Init(c, LockConfig{Lease: lease, Space: wire.Space_LOCK, Name: "x", Linger: linger, Reentrant: reentrant})
	return k
}

// Two goroutines that act as one release the two holds of a re-entrant handle at once. The
// lock goes to one other handle.
func TestTenure_ReleasesAtOnce(t *testing.T) {
	c, _, _ := newLingering(t)
	r := lockOf(c, nil, time.Minute, true)
	var inside, both atomic.Int32
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		l := lockOf(c, nil, time.Minute, false)
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := l.Acquire(t.Context(), true, nil, nil); err != nil {
					return
				}
				if inside.Add(1) > 1 {
					both.Add(1)
				}
				for range 200 {
					_ = l.Holds()
				}
				inside.Add(-1)
				_ = l.Release(t.Context(), nil)
			}
		})
	}
	rounds := 30_000
	if testing.Short() {
		rounds = 5_000 // without the detector two releases meet more rarely
	}
	for range rounds {
		for range 2 {
			mustAcquire(t, r)
		}
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 2 {
			wg.Go(func() { <-start; _ = r.Release(t.Context(), nil) })
		}
		close(start)
		wg.Wait()
	}
	close(stop)
	others.Wait()
	if n := both.Load(); n > 0 {
		t.Fatalf("two handles held the lock at once, %d times", n)
	}
}

// slowCancel delays the goroutine of a tenure's request.
type slowCancel struct {
	*fakeGroup
	wait func()
}

func (s slowCancel) Cancel(c Call) { s.wait(); s.fakeGroup.Cancel(c) }

// The last that waits leaves, and the tenure is granted and released before the goroutine of its
// request notices.
func TestTenure_GrantBeatsCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, other := newLingering(t)
		outside := newLock(c, other, "x")
		mustAcquire(t, outside)
		cancelled := make(chan struct{})
		c.group = slowCancel{g, func() { <-cancelled }}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := acquiring(ctx, newLingeringLock(c, "x"))
		synctest.Wait()
		cancel()
		synctest.Wait()
		mustRelease(t, outside) // grants the tenure, which no caller wants: it is released
		synctest.Wait()
		if v := g.lock("x"); v != nil {
			t.Errorf("the group sees %+v", v)
		}
		close(cancelled)
		if r := <-waiting; r.err == nil {
			t.Errorf("got %+v", r)
		}
		c.StopRenewing()
	})
}

// Two TryLocks of one process at once: the second is refused, and does not recall the first's
// tenure.
func TestTenure_TryLocksTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		if _, err := c.ownLease(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.hold()
		a, b := lockOf(c, nil, time.Minute, false), lockOf(c, nil, time.Minute, false)
		done := make(chan error, 2)
		for _, l := range []*Lock{a, b} {
			go func() {
				_, err := l.Acquire(t.Context(), false, nil, nil)
				if err == nil {
					err = l.Release(t.Context(), nil)
				}
				done <- err
			}()
			synctest.Wait()
		}
		g.release()
		first, second := <-done, <-done
		if (first == nil) == (second == nil) {
			t.Errorf("got %v and %v, want one grant", first, second)
		}
		synctest.Wait()
		if v := g.lock("x"); v == nil {
			t.Error("no other process wants the lock, but it does not linger")
		}
		c.StopRenewing()
	})
}

// A TryLock of a re-entrant handle whose other goroutine acquires meanwhile.
func TestTenure_TryLocksOfReentrantHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		l := lockOf(c, nil, time.Minute, true)
		if _, err := c.ownLease(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.hold()
		done := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := l.Acquire(t.Context(), false, nil, nil)
				done <- err
			}()
			synctest.Wait()
		}
		g.release()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("TryLock of the re-entrant handle, and no other owner: %v", err)
			}
		}
		c.StopRenewing()
	})
}

// The same two goroutines with Lock: the second one waits for the first one's Unlock.
func TestTenure_LocksOfReentrantHandle(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			c, g, _ := newLingering(t)
			l := lockOf(c, nil, linger, true)
			if _, err := c.ownLease(t.Context()); err != nil {
				t.Fatal(err)
			}
			g.hold()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			results := []<-chan acquired{acquiring(ctx, l), acquiring(ctx, l)}
			synctest.Wait()
			g.release()
			for _, r := range results {
				if got := <-r; got.err != nil {
					t.Errorf("linger %v: %v", linger, got.err)
				}
			}
			c.StopRenewing()
		})
	}
}

// Two waiters, nothing can be sent: both should learn that no quorum was reachable.
func TestTenure_UnavailableForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		if _, err := c.ownLease(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.hold()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, r := range []<-chan acquired{acquiring(ctx, lockOf(c, nil, time.Minute, false)), acquiring(ctx, lockOf(c, nil, time.Minute, false))} {
			if got := <-r; !IsKind(got.err, Unavailable) {
				t.Errorf("nothing was sent, but: %v", got.err)
			}
		}
		g.release()
		c.StopRenewing()
	})
}
