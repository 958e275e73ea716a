package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// A handle that holds the lock loses it while another Acquire of it is under way, by
// re-entry or in the queue: its hold is lost, and its release is owed.
func TestLock_LeaseEndsWhileHandleHolds(t *testing.T) {
	for name, reentrant := range map[string]bool{"re-entry": true, "queue": false} {
		t.Run(name, func(t *testing.T) {
			c, g := newFake(t)
			l := new(Lock)
			l.Init(c, LockConfig{Name: "x", Reentrant: reentrant})
			mustAcquire(t, l)
			own, err := c.ownLease(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			g.hold()
			failed := make(chan error, 1)
			go func() {
				_, err := l.Acquire(context.Background(), true, nil, nil)
				failed <- err
			}()
			g.awaitQueued()
			own.expire(nil)
			err = <-failed
			g.release()
			wantKind(t, err, Lost)
			wantKind(t, l.Release(t.Context(), nil), Lost)
			mustAcquire(t, l)
		})
	}
}

// The same under a session of its own, when the owed release comes before the call has
// noticed.
func TestLock_ReleasedWhileLostDuringAcquire(t *testing.T) {
	for name, reentrant := range map[string]bool{"re-entry": true, "queue": false} {
		t.Run(name, func(t *testing.T) {
			c, g := newFake(t)
			lease := mustOpen(t, c, time.Hour)
			l := new(Lock)
			l.Init(c, LockConfig{Lease: lease, Name: "x", Reentrant: reentrant})
			mustAcquire(t, l)
			g.hold()
			failed := make(chan error, 1)
			go func() {
				_, err := l.Acquire(context.Background(), true, nil, nil)
				failed <- err
			}()
			g.awaitQueued()
			l.mu.Lock()
			lease.end(endedByGroup(), lost)
			l.hold = nil // as its release leaves it
			l.mu.Unlock()
			wantKind(t, <-failed, Lost)
			_, err := l.Acquire(context.Background(), true, nil, nil)
			wantKind(t, err, Expired)
			g.release()
		})
	}
}

// awaitQueued blocks until a command is held back.
func (g *fakeGroup) awaitQueued() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.queue) == 0 {
		g.changed.Wait()
	}
}

// A reentrant handle is not granted the rest of what it has lost: it waits for the end of that in the group.
func TestMaxHold_ReentrantAfterLoss(t *testing.T) {
	for name, limit := range map[string]uint32{"unlimited": 0, "limit": 1} {
		t.Run(name, func(t *testing.T) {
			bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
				l := newRWLock(t, c, LockConfig{Reentrant: true, Limit: limit, MaxHold: maxHold})
				began := time.Now()
				mustWrite(t, l)
				first, _ := l.Fence()
				<-l.Lost()
				wantOverdue(t, l.Release(t.Context(), nil))
				if _, err := l.Acquire(t.Context(), false, nil); !isCode(err, wire.Code_LOCKED) {
					t.Errorf("TryLock: %v", err)
				}
				got := calling(t.Context(), l.Acquire)
				synctest.Wait()
				if l.Holds() != 0 {
					t.Error("granted before the group has ended the hold")
				}
				time.Sleep(time.Until(began.Add(maxHold)))
				g.tick()
				if err := <-got; err != nil {
					t.Fatal(err)
				}
				if next, err := l.Fence(); err != nil || next <= first {
					t.Errorf("fence %d after %d, %v", next, first, err)
				}
				time.Sleep(trustedHold / 2)
				if err := l.Release(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// So does a request in the other mode, which the group would take for one of the exclusive owner.
func TestMaxHold_ReentrantSharesAfterLoss(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		l := newRWLock(t, c, LockConfig{Reentrant: true, MaxHold: maxHold})
		began := time.Now()
		mustWrite(t, l)
		first, _ := l.Fence()
		<-l.Lost()
		wantOverdue(t, l.Release(t.Context(), nil))
		got := calling(t.Context(), l.AcquireShared)
		synctest.Wait()
		if l.Holds() != 0 {
			t.Error("granted before the group has ended the hold")
		}
		time.Sleep(time.Until(began.Add(maxHold)))
		g.tick()
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if next, err := l.Fence(); err != nil || next <= first {
			t.Errorf("fence %d after %d, %v", next, first, err)
		}
		if err := l.ReleaseShared(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
}
