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

// atErr is a context that does something when it is asked for its error: first after it was
// cancelled or, with early, at once.
type atErr struct {
	context.Context
	early bool
	once  *sync.Once
	do    func()
}

func (c atErr) Err() error {
	if err := c.Context.Err(); err == nil && !c.early {
		return nil
	}
	c.once.Do(c.do)
	return c.Context.Err()
}

// A caller that leaves has been granted a share, and another caller's release has taken that instead: what is
// left is the other caller's, and is released.
func TestSharedTenure_LeaverReleasesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, _ := newSharing(t, false)
		defer c.StopRenewing()
		mustWrite(t, a)
		ctx, cancel := context.WithCancel(t.Context())
		left := calling(atErr{Context: ctx, once: new(sync.Once), do: func() {
			if _, err := a.Downgrade(t.Context(), nil); err != nil { // which grants what waits
				t.Error(err)
			}
			if err := a.ReleaseShared(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}}, a.AcquireShared)
		synctest.Wait()
		cancel()
		wantKind(t, <-left, Interrupted)
		time.Sleep(2 * stay)
		synctest.Wait()
		wantReleased(t, g, a)
	})
}

// A request without waiting is granted after another one whose tenure goes on. A caller that was about to
// join that one holds what it can release.
func TestSharedTenure_JoinsBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, _ := newSharing(t, false)
		defer c.StopRenewing()
		mustShare(t, a) // has the lease opened
		mustReleaseShared(t, a)
		time.Sleep(2 * stay)
		synctest.Wait()
		g.hold()
		tried := make(chan error, 1)
		go func() {
			_, err := a.AcquireShared(t.Context(), false, nil)
			tried <- err
		}()
		synctest.Wait()
		var delayed []queuedCommand
		g.set(func() { delayed, g.queue = g.queue, nil })
		waited := calling(t.Context(), a.AcquireShared)
		synctest.Wait()
		g.release()
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		mustReleaseShared(t, a)
		_, err := a.AcquireShared(atErr{Context: t.Context(), early: true, once: new(sync.Once), do: func() {
			g.set(func() { g.queue = append(g.queue, delayed...) })
			if err := <-tried; err != nil {
				t.Error(err)
			}
		}}, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a.Holds() != 2 {
			t.Errorf("%d holds, want 2", a.Holds())
		}
		mustReleaseShared(t, a)
		mustReleaseShared(t, a)
		time.Sleep(2 * stay)
		synctest.Wait()
		wantReleased(t, g, a)
	})
}

// A handle that holds nothing when its lease ends has lost nothing, whatever its calls do at that moment.
func TestSharedTenure_NothingLost(t *testing.T) {
	c, g, a, _ := newSharing(t, false)
	mustShare(t, a)
	mustReleaseShared(t, a)
	own, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own.end(endedByGroup(), lost)
	var read atomic.Bool
	g.clock.atRead(func() {
		if read.CompareAndSwap(false, true) {
			if _, err := a.AcquireShared(t.Context(), true, nil); err != nil {
				t.Errorf("a call beside another one: %v", err)
			}
		}
	})
	mustShare(t, a)
}

// A call that is refused, since another call of the handle has come first, returns no fence.
func TestSharedTenure_RefusedWithoutFence(t *testing.T) {
	c, g, a, _ := newSharing(t, true)
	mustShare(t, a) // the tenure that the others join
	b := newRWLock(t, c, LockConfig{Linger: stay, Reentrant: true, Limit: 1})
	var read atomic.Bool
	g.clock.atRead(func() { // after the call has found that the handle holds nothing
		if read.CompareAndSwap(false, true) {
			mustShare(t, b)
		}
	})
	fence, err := b.AcquireShared(t.Context(), true, nil)
	if !isCode(err, wire.Code_LIMIT_REACHED) || fence != 0 {
		t.Errorf("fence %d, %v", fence, err)
	}
}

// A process that was suspended with an idle tenure reports no loss.
func TestSharedTenure_NothingReported(t *testing.T) {
	c, _, a, _ := newSharing(t, false)
	var reported atomic.Int64
	c.losses.report = func(string, uint64) { reported.Add(1) }
	mustShare(t, a)
	mustReleaseShared(t, a)
	suspended, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	suspended.age(time.Hour)
	mustShare(t, a)
	if n := reported.Load(); n != 0 {
		t.Errorf("%d losses of a handle that held nothing", n)
	}
}

// What was released before the lease ended was not lost.
func TestSharedTenure_ReleasedThenExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _, writer := newSharing(t, false)
		defer c.StopRenewing()
		for _, linger := range []time.Duration{0, stay} {
			lease := mustOpen(t, c, time.Hour)
			a := newRWLock(t, c, LockConfig{Linger: linger, Lease: lease})
			mustShare(t, a)
			wrote := calling(t.Context(), writer.Acquire)
			synctest.Wait()
			waits := calling(t.Context(), a.AcquireShared)
			synctest.Wait()
			mustReleaseShared(t, a)
			if err := <-wrote; err != nil {
				t.Fatal(err)
			}
			lease.end(endedByGroup(), lost)
			wantKind(t, <-waits, Expired)
			if err := writer.Release(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A re-entry that the group applies after a downgrade finds the share, which is not lost.
func TestDowngrade_BeforeReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l := newRWLock(t, c, LockConfig{Reentrant: true, Lease: mustOpen(t, c, time.Hour)})
		mustWrite(t, l)
		g.hold()
		again := calling(t.Context(), l.Acquire)
		synctest.Wait()
		downgraded := downgrading(t.Context(), l)
		synctest.Wait()
		g.first()
		g.release()
		if err := <-downgraded; err != nil {
			t.Fatal(err)
		}
		wantKind(t, <-again, OtherMode)
		mustReleaseShared(t, l)
		wantReleased(t, g, l)
	})
}

// The channel of a hold that was downgraded is closed at a loss, also if another caller's share was released before.
func TestDowngrade_LostBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newFake(t)
		defer c.StopRenewing()
		lease := mustOpen(t, c, time.Hour)
		l := newRWLock(t, c, LockConfig{Lease: lease})
		mustWrite(t, l)
		ended := l.Lost()
		read := calling(t.Context(), l.AcquireShared)
		synctest.Wait()
		if _, err := l.Downgrade(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil {
			t.Fatal(err)
		}
		mustReleaseShared(t, l)
		lease.end(endedByGroup(), lost)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the holder does not learn of the loss")
		}
	})
}

// A lease that ends while a hold of an idle tenure begins does not grant it.
func TestSharedTenure_EndsAsEntered(t *testing.T) {
	c, g, a, _ := newSharing(t, false)
	mustShare(t, a)
	mustReleaseShared(t, a)
	own, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int64
	g.clock.atRead(func() {
		if reads.Add(1) == 2 { // the first was before the hold began
			own.end(endedByGroup(), lost)
		}
	})
	mustShare(t, a)
	if _, err := a.Fence(); err != nil {
		t.Error(err)
	}
}

// A caller leaves whose re-entry was granted and then downgraded, with the hold that it entered: its count is released.
func TestDowngrade_LeaverOfReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l := newRWLock(t, c, LockConfig{Reentrant: true, Lease: mustOpen(t, c, time.Hour)})
		mustWrite(t, l)
		g.hold()
		g.set(func() { g.sent = true })
		ctx, cancel := context.WithCancel(t.Context())
		left := calling(atErr{Context: ctx, once: new(sync.Once), do: func() {
			g.release()
			if _, err := l.Downgrade(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}}, l.Acquire)
		synctest.Wait()
		cancel()
		wantKind(t, <-left, Interrupted)
		synctest.Wait()
		if l.Holds() != 1 {
			t.Errorf("%d holds, want the one that is owed", l.Holds())
		}
		mustReleaseShared(t, l)
		wantReleased(t, g, l)
	})
}
