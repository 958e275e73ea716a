package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

func mustWrite(t *testing.T, l *RWLock) uint64 {
	t.Helper()
	f, err := l.Acquire(t.Context(), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// downgrading runs a Downgrade, and delivers its error.
func downgrading(ctx context.Context, l *RWLock) <-chan error {
	return calling(ctx, func(ctx context.Context, _ bool, tr *Trace) (uint64, error) { return l.Downgrade(ctx, tr) })
}

// A downgraded hold is a share with a fence of its own, and what waits to share is granted
// with it, before a writer that came later.
func TestDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l, reader, writer := newRWLock(t, c, LockConfig{}), newRWLock(t, c, LockConfig{}), newRWLock(t, c, LockConfig{})
		wantKind(t, <-downgrading(t.Context(), l), NotHeld)
		first := mustWrite(t, l)
		lost := l.Lost()
		read := calling(t.Context(), reader.AcquireShared)
		synctest.Wait()
		wrote := calling(t.Context(), writer.Acquire)
		synctest.Wait()
		second, err := l.Downgrade(t.Context(), nil)
		if err != nil || second <= first {
			t.Fatalf("fence %d, %v; want more than %d", second, err, first)
		}
		if err := <-read; err != nil {
			t.Fatal(err)
		}
		if f, _ := reader.Fence(); f != second {
			t.Errorf("the reader has fence %d, want %d", f, second)
		}
		if f, err := l.Fence(); f != second || err != nil || l.Holds() != 1 {
			t.Errorf("the handle has fence %d, %v, %d holds", f, err, l.Holds())
		}
		if v := g.lock("x"); v.Shared != 2 || v.Waiters != 1 {
			t.Errorf("the group has %+v, want two shares and a waiter", v)
		}
		wantKind(t, <-downgrading(t.Context(), l), NotHeld)
		wantKind(t, l.Release(t.Context(), nil), NotHeld)
		for _, r := range []*RWLock{reader, l} {
			if err := r.ReleaseShared(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		select {
		case <-lost:
			t.Error("a hold that was released counts as lost")
		default:
		}
	})
}

// A channel that a holder waits on since before the downgrade is closed when it loses the share.
func TestDowngrade_ThenLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newFake(t)
		defer c.StopRenewing()
		var reported []uint64
		c.losses.report = func(_ string, fence uint64) { reported = append(reported, fence) }
		lease := mustOpen(t, c, time.Hour)
		l := newRWLock(t, c, LockConfig{Lease: lease})
		mustWrite(t, l)
		lost := l.Lost()
		fence, err := l.Downgrade(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.CloseSession(t.Context(), lease.ID()); err != nil {
			t.Fatal(err)
		}
		<-lost
		<-l.Lost()
		if len(reported) != 1 || reported[0] != fence {
			t.Errorf("the lost holds have the fences %d, want %d", reported, fence)
		}
		wantKind(t, <-downgrading(t.Context(), l), NotHeld)
		wantKind(t, l.ReleaseShared(t.Context(), nil), Lost)
		mustWriteFails(t, l, Expired)
	})
}

func mustWriteFails(t *testing.T, l *RWLock, k Kind) {
	t.Helper()
	_, err := l.Acquire(t.Context(), true, nil)
	wantKind(t, err, k)
}

func TestDowngrade_Reentrant(t *testing.T) {
	c, g := newFake(t)
	l := newRWLock(t, c, LockConfig{Reentrant: true, Limit: 3})
	mustWrite(t, l)
	mustWrite(t, l)
	fence, err := l.Downgrade(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if f := mustShare(t, l); f != fence {
		t.Errorf("the re-entry has fence %d, want %d", f, fence)
	}
	if v := g.lock("x"); v.Shared != 1 || v.Holds != 3 || l.Holds() != 3 {
		t.Errorf("the group has %+v and the handle %d holds, want 3", v, l.Holds())
	}
	mustWriteFails(t, l, OtherMode)
	for range 3 {
		if err := l.ReleaseShared(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	wantReleased(t, g, l)
}

// A caller that leaves before the downgrade was sent holds the lock exclusively as before.
func TestDowngrade_NotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l := newRWLock(t, c, LockConfig{Lease: mustOpen(t, c, time.Hour)})
		first := mustWrite(t, l)
		wantKind(t, <-downgrading(done(), l), Interrupted)
		g.hold()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantKind(t, <-downgrading(ctx, l), Unavailable)
		g.release()
		if f, err := l.Fence(); f != first || err != nil {
			t.Errorf("fence %d, %v; want %d", f, err, first)
		}
		wantKind(t, l.ReleaseShared(t.Context(), nil), NotHeld)
		if err := l.Release(t.Context(), nil); err != nil {
			t.Error(err)
		}
		wantReleased(t, g, l)
	})
}

// While the outcome is unknown, and once it came to a caller that had left, either release
// releases the hold, whichever it is.
func TestDowngrade_Unknown(t *testing.T) {
	for name, test := range map[string]struct {
		release func(*RWLock, context.Context, *Trace) error
		early   bool // before the outcome
		refused bool // the group was too busy
	}{
		"released exclusively before the outcome": {(*RWLock).releaseExclusive, true, false},
		"released shared before the outcome":      {(*RWLock).ReleaseShared, true, false},
		"released exclusively after the outcome":  {(*RWLock).releaseExclusive, false, false},
		"released shared after the outcome":       {(*RWLock).ReleaseShared, false, false},
		"refused, released exclusively":           {(*RWLock).releaseExclusive, false, true},
		"refused, released shared":                {(*RWLock).ReleaseShared, false, true},
		"refused later, released shared":          {(*RWLock).ReleaseShared, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, g := newFake(t)
				defer c.StopRenewing()
				g.set(func() {
					g.sent = true
					g.refuses = func(c *wire.Command) bool { return test.refused && c.GetDowngrade() != nil }
				})
				l := newRWLock(t, c, LockConfig{Lease: mustOpen(t, c, time.Hour)})
				mustWrite(t, l)
				g.hold()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				wantKind(t, <-downgrading(ctx, l), Unknown)
				if !test.early {
					g.release()
				}
				released := make(chan error, 1)
				go func() { released <- test.release(l, t.Context(), nil) }()
				synctest.Wait()
				if l.Holds() != 0 {
					t.Error("the hold counts as released from the call on")
				}
				read := calling(t.Context(), l.AcquireShared) // behind the release
				synctest.Wait()
				g.release()
				if err := <-released; err != nil {
					t.Error(err)
				}
				if err := <-read; err != nil {
					t.Fatal(err)
				}
				if v := g.lock("x"); v == nil || v.Shared != 1 {
					t.Errorf("the group has %+v, want the share of the later call", v)
				}
				if err := l.ReleaseShared(t.Context(), nil); err != nil {
					t.Error(err)
				}
				wantReleased(t, g, l)
			})
		})
	}
}

// releaseExclusive is Release, which is a method of what an RWLock embeds.
func (l *RWLock) releaseExclusive(ctx context.Context, tr *Trace) error { return l.Release(ctx, tr) }

// A release without waiting during a downgrade takes effect once that is settled.
func TestDowngrade_ReleasedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l := newRWLock(t, c, LockConfig{Reentrant: true})
		mustWrite(t, l)
		mustWrite(t, l)
		g.hold()
		downgraded := downgrading(t.Context(), l)
		synctest.Wait()
		wantKind(t, l.Release(done(), nil), Unknown)
		wantKind(t, l.ReleaseShared(done(), nil), Unknown)
		g.release()
		if err := <-downgraded; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		wantReleased(t, g, l)
	})
}

// A downgrade waits for the releases of the hold that are under way: applied before them, it
// would make them miss.
func TestDowngrade_BehindRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		g.set(func() { g.sent = true })
		l := newRWLock(t, c, LockConfig{Reentrant: true})
		mustWrite(t, l)
		mustWrite(t, l)
		g.hold()
		wantKind(t, l.Release(done(), nil), Unknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantKind(t, <-downgrading(ctx, l), Unavailable)
		downgraded := downgrading(t.Context(), l)
		synctest.Wait()
		g.mu.Lock()
		if len(g.queue) != 1 {
			t.Errorf("%d commands under way, want the release", len(g.queue))
		}
		g.mu.Unlock()
		g.release()
		if err := <-downgraded; err != nil {
			t.Fatal(err)
		}
		if v := g.lock("x"); v.Shared != 1 || v.Holds != 1 {
			t.Errorf("the group has %+v, want one share with one hold", v)
		}
	})
}

// The end of the lease ends a downgrade, with or without the group.
func TestDowngrade_Lost(t *testing.T) {
	for name, end := range map[string]func(c *Client, g *fakeGroup, l *Lease){
		"here": func(_ *Client, _ *fakeGroup, l *Lease) { l.end(endedByGroup(), lost) },
		"in the group": func(c *Client, g *fakeGroup, l *Lease) {
			c.pursue(closeCommand(l.id, false), ignore)
			g.first()
			g.release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, g := newFake(t)
				defer c.StopRenewing()
				g.set(func() { g.sent = true })
				lease := mustOpen(t, c, time.Hour)
				l := newRWLock(t, c, LockConfig{Lease: lease})
				mustWrite(t, l)
				g.hold()
				downgraded := downgrading(t.Context(), l)
				synctest.Wait()
				end(c, g, lease)
				wantKind(t, <-downgraded, Lost)
				g.release()
				_, err := l.Fence()
				wantKind(t, err, Lost)
				if l.Holds() != 1 {
					t.Errorf("%d holds, want the one that is owed", l.Holds())
				}
			})
		})
	}
}

// first has the group apply the command first that was submitted last.
func (g *fakeGroup) first() {
	g.set(func() {
		last := len(g.queue) - 1
		g.queue = append([]queuedCommand{g.queue[last]}, g.queue[:last]...)
	})
}
