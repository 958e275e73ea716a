package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// How tenures end, and requests in them.

// The end of the lease is the end of the tenure: the holder learns of it, and those that
// wait go on under the next lease.
func TestTenure_LostWithLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := newLingering(t)
		a, b := newLingeringLock(c, "x"), newLingeringLock(c, "x")
		fence := mustAcquire(t, a)
		lost := a.Lost()
		waiting := acquiring(t.Context(), b)
		synctest.Wait()
		own, err := c.ownLease(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.CloseSession(t.Context(), own.ID()); err != nil {
			t.Fatal(err)
		}
		<-lost
		_, err = a.Fence()
		wantKind(t, err, Lost)
		wantKind(t, a.Release(t.Context(), nil), Lost)
		if r := <-waiting; r.err != nil || r.fence <= fence {
			t.Errorf("got %+v after %d", r, fence)
		}
		if got := b.Lost(); got == nil {
			t.Error("no channel for a hold")
		}
		c.StopRenewing()
	})
}

// A Lock whose context ends while it waits here holds nothing, and leaves no request in
// the group once it was the last.
func TestTenure_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, other := newLingering(t)
		outside := newLock(c, other, "x")
		mustAcquire(t, outside)
		ctx, cancel := context.WithCancel(t.Context())
		first := acquiring(ctx, newLingeringLock(c, "x"))
		synctest.Wait()
		second := acquiring(ctx, newLingeringLock(c, "x"))
		synctest.Wait()
		if v := g.lock("x"); v.Waiters != 1 {
			t.Errorf("%d requests for one tenure", v.Waiters)
		}
		cancel()
		for _, result := range []<-chan acquired{first, second} {
			if r := <-result; !errors.Is(r.err, context.Canceled) {
				t.Errorf("got %+v", r)
			}
		}
		synctest.Wait()
		if v := g.lock("x"); v.Waiters != 0 {
			t.Errorf("%d requests are left", v.Waiters)
		}
		// In a tenure that goes on, the handle alone leaves.
		mustRelease(t, outside)
		a := newLingeringLock(c, "x")
		mustAcquire(t, a)
		ctx, cancel = context.WithCancel(t.Context())
		self := acquiring(ctx, a)
		synctest.Wait()
		cancel()
		var f *Fault
		if r := <-self; !errors.As(r.err, &f) || !a.IsOwner(f.Reply) {
			t.Errorf("got %+v, want that this handle holds the lock", r)
		}
		mustRelease(t, a)
		mustAcquire(t, a)
		c.StopRenewing()
	})
}

// Nothing is said to be unreachable that is held here; and a release needs no context.
func TestTenure_ReleaseWithoutContext(t *testing.T) {
	c, g, _ := newLingering(t)
	a := newLingeringLock(c, "x")
	mustAcquire(t, a)
	g.hold()
	defer g.release()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Release(done, nil); err != nil {
		t.Error(err)
	}
	mustAcquire(t, a)
}

// A snapshot may stand for the entry that recalled a tenure.
func TestTenure_ClosedBySnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		a := newLingeringLock(c, "x")
		mustAcquire(t, a)
		mustRelease(t, a)
		g.replaceState()
		synctest.Wait()
		if v := g.lock("x"); v != nil {
			t.Errorf("the group sees %+v", v)
		}
		c.StopRenewing()
	})
}

// A tenure lingers from the last release on.
func TestTenure_IdleTimeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		a := newLingeringLock(c, "x")
		mustAcquire(t, a)
		mustRelease(t, a)
		time.Sleep(stay * 6 / 10)
		mustAcquire(t, a)
		mustRelease(t, a)
		for _, step := range []struct {
			pass time.Duration
			kept bool
		}{{stay * 9 / 10, true}, {stay * 2 / 10, false}} {
			time.Sleep(step.pass)
			synctest.Wait()
			if v := g.lock("x"); (v != nil) != step.kept {
				t.Errorf("after %v more the group sees %+v", step.pass, v)
			}
		}
		c.StopRenewing()
	})
}

// A process that was stopped grants nothing under a lease whose deadline has passed,
// before any timer has run.
func TestTenure_NotAfterDeadline(t *testing.T) {
	c, g, _ := newLingering(t)
	a := newLingeringLock(c, "x")
	before := mustAcquire(t, a)
	mustRelease(t, a)
	own, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own.age(time.Hour)
	applied := g.commands()
	if fence := mustAcquire(t, a); fence <= before+1 || g.commands() == applied {
		t.Errorf("fence %d after %d without a new session", fence, before)
	}
}

// The time to linger is that of the last handle.
func TestTenure_ShorterLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		long, short := lockOf(c, nil, time.Hour, false), lockOf(c, nil, time.Second, false)
		mustAcquire(t, long)
		mustRelease(t, long)
		mustAcquire(t, short)
		mustRelease(t, short)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if v := g.lock("x"); v != nil {
			t.Errorf("10m after an Unlock with Linger(1s) the group sees %+v", v)
		}
		c.StopRenewing()
	})
}

// Another owner that polls with TryLock is refused once, and not each time that a tenure
// lingers.
func TestTenure_TryLockElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, other := newLingering(t)
		l, outside := lockOf(c, nil, time.Second, false), newLock(c, other, "x")
		ctx, stop := context.WithCancel(t.Context())
		var user sync.WaitGroup
		user.Go(func() {
			for ctx.Err() == nil { // holds the lock for no time at all, 20 times a second
				mustAcquire(t, l)
				mustRelease(t, l)
				time.Sleep(50 * time.Millisecond)
			}
		})
		time.Sleep(10 * time.Millisecond)
		refused := 0 // in a row
		for range 100 {
			if _, err := outside.Acquire(t.Context(), false, nil, nil); err == nil {
				refused = 0
				mustRelease(t, outside)
			} else if refused++; refused > 1 {
				t.Error("refused again, and no handle held the lock at either moment")
			}
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		user.Wait()
		c.StopRenewing()
	})
}

// Nothing would end a tenure under a session without TTL once its process has ended.
func TestTenure_NotWithoutTTL(t *testing.T) {
	c, g, _ := newLingering(t)
	l := lockOf(c, mustOpen(t, c, NoTTL), time.Hour, false)
	mustAcquire(t, l)
	mustRelease(t, l)
	if v := g.lock("x"); v != nil {
		t.Errorf("the group sees %+v", v)
	}
}
