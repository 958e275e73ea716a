package client

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The loss of the session ends all holds of the tenure, and each release that is owed fails.
func TestSharedTenure_Lost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, _ := newSharing(t, false)
		defer c.StopRenewing()
		var reported []uint64
		c.losses.report = func(_ string, fence uint64) { reported = append(reported, fence) }
		idle := newRWLock(t, c, LockConfig{Linger: stay})
		mustShare(t, idle)
		first := mustShare(t, a)
		mustShare(t, a)
		mustReleaseShared(t, idle)
		if leases, holds := c.Sizes(); leases != 2 || holds != 2 {
			t.Errorf("%d leases with %d holds, want the two that are held", leases, holds)
		}
		own, err := c.ownLease(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended := a.Lost()
		own.end(endedByGroup(), lost)
		<-ended
		if len(reported) != 1 || reported[0] != first {
			t.Errorf("lost: %d, want the fence of the handle that held", reported)
		}
		for range 2 {
			_, err = a.AcquireShared(t.Context(), true, nil)
			wantKind(t, err, Lost)
			_, err = a.Fence()
			wantKind(t, err, Lost)
			wantKind(t, a.ReleaseShared(t.Context(), nil), Lost)
		}
		wantKind(t, a.ReleaseShared(t.Context(), nil), NotHeld)
		if f := mustShare(t, a); f < first {
			t.Errorf("fence %d after %d", f, first)
		}
		if v := g.lock("x"); v.Shared < 1 {
			t.Errorf("the group has %+v", v)
		}
	})
}

// A process that was stopped finds its deadline passed before any timer has run.
func TestSharedTenure_NotAfterDeadline(t *testing.T) {
	c, _, a, _ := newSharing(t, false)
	mustShare(t, a)
	mustShare(t, a)
	own, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own.age(time.Hour)
	_, err = a.AcquireShared(t.Context(), true, nil)
	wantKind(t, err, Lost)
	wantKind(t, a.ReleaseShared(t.Context(), nil), Lost)
	_, err = a.Fence()
	wantKind(t, err, Lost)
	wantKind(t, a.ReleaseShared(t.Context(), nil), Lost)
	mustShare(t, a)
}

// A program that makes a handle for each use does not fill the memory.
func TestSharedTenure_ManyHandles(t *testing.T) {
	c, g, a, _ := newSharing(t, false)
	mustShare(t, a)
	applied := g.commands()
	for range 5000 {
		l := newRWLock(t, c, LockConfig{Linger: stay})
		mustShare(t, l)
		mustReleaseShared(t, l)
	}
	own, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own.mu.Lock()
	parts := len(own.parts)
	own.mu.Unlock()
	if parts > 200 || g.commands() != applied {
		t.Errorf("%d parts of 5,000 handles, %d commands", parts, g.commands()-applied)
	}
	mustReleaseShared(t, a)
	mustShare(t, a)
}

// A snapshot may stand for entries that recalled the tenure.
func TestSharedTenure_StateReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, _ := newSharing(t, false)
		defer c.StopRenewing()
		mustShare(t, a)
		mustReleaseShared(t, a)
		g.replaceState()
		synctest.Wait()
		wantReleased(t, g, a)
	})
}

// A session that nothing would end after its process keeps nothing.
func TestSharedTenure_NotWithoutTTL(t *testing.T) {
	c, g, _, _ := newSharing(t, false)
	l := newRWLock(t, c, LockConfig{Linger: stay, Lease: mustOpen(t, c, NoTTL)})
	mustShare(t, l)
	mustReleaseShared(t, l)
	wantReleased(t, g, l)
}

// Goroutines of one handle and of several enter and leave while writers recall them all the time.
func TestSharedTenure_Parallel(t *testing.T) {
	c, g, a, writer := newSharing(t, false)
	b := newRWLock(t, c, LockConfig{Linger: stay})
	var (
		readers sync.WaitGroup
		mu      sync.RWMutex
		stopped = make(chan struct{})
	)
	for i := range 8 {
		l := []*RWLock{a, b}[i%2]
		readers.Go(func() {
			for {
				select {
				case <-stopped:
					return
				default:
				}
				if _, err := l.AcquireShared(t.Context(), true, nil); err != nil {
					t.Error(err)
					return
				}
				if !mu.TryRLock() {
					t.Error("a reader beside a writer")
				} else {
					runtime.Gosched()
					mu.RUnlock()
				}
				if err := l.ReleaseShared(t.Context(), nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 200 {
		mustWrite(t, writer)
		if !mu.TryLock() {
			t.Fatal("a writer beside a reader")
		}
		runtime.Gosched()
		mu.Unlock()
		if err := writer.Release(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	close(stopped)
	readers.Wait()
	if a.Holds() != 0 || b.Holds() != 0 {
		t.Errorf("%d and %d holds are left", a.Holds(), b.Holds())
	}
	if v := g.lock("x"); v != nil && v.Waiters > 0 {
		t.Errorf("the group still has %+v", v)
	}
}
