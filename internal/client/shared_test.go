package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// newRWLock returns a handle, in a group that knows the shared mode.
func newRWLock(t testing.TB, c *Client, cfg LockConfig) *RWLock {
	t.Helper()
	if c.group.Level() < wire.LevelShared {
		raise(t, c, wire.LevelShared)
	}
	cfg.Space, cfg.Name = wire.Space_LOCK, "x"
	l := new(RWLock)
	l.Init(c, cfg)
	return l
}

func mustShare(t *testing.T, l *RWLock) uint64 {
	t.Helper()
	f, err := l.AcquireShared(t.Context(), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// calling runs an acquisition, and delivers its error.
func calling(ctx context.Context, acquire func(context.Context, bool, *Trace) (uint64, error)) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := acquire(ctx, true, nil)
		result <- err
	}()
	return result
}

// done is a context that is done.
func done() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func wantReleased(t *testing.T, g *fakeGroup, l *RWLock) {
	t.Helper()
	if v := g.lock("x"); v != nil || l.Holds() != 0 {
		t.Errorf("the group has %+v, and the handle %d holds; want none", v, l.Holds())
	}
}

// Each acquisition of a handle is a hold of its own, and all that are held together have one
// fence, of one handle or of several.
func TestRWLock_SharedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l, other := newRWLock(t, c, LockConfig{}), newRWLock(t, c, LockConfig{Lease: mustOpen(t, c, time.Hour)})
		first := mustShare(t, l)
		if second, third := mustShare(t, l), mustShare(t, other); second != first || third != first {
			t.Errorf("fences %d, %d, %d; want one", first, second, third)
		}
		if f, err := l.Fence(); f != first || err != nil || l.Holds() != 2 || l.GrantedFence() != first {
			t.Errorf("fence %d, %v, %d holds", f, err, l.Holds())
		}
		writer := newRWLock(t, c, LockConfig{})
		wrote := calling(t.Context(), writer.Acquire)
		for i, r := range []*RWLock{l, other, l} {
			synctest.Wait()
			select {
			case err := <-wrote:
				t.Fatalf("a writer was granted the lock beside %d readers: %v", 3-i, err)
			default:
			}
			if err := r.ReleaseShared(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		written, err := writer.Fence()
		if err != nil || written <= first {
			t.Errorf("the writer's fence is %d, %v; want more than %d", written, err, first)
		}
		if err := writer.Release(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if again := mustShare(t, l); again <= written {
			t.Errorf("the next phase has the fence %d, want more than %d", again, written)
		}
		wantKind(t, l.Release(t.Context(), nil), NotHeld)
		if err := l.ReleaseShared(t.Context(), nil); err != nil {
			t.Error(err)
		}
		wantKind(t, l.ReleaseShared(t.Context(), nil), NotHeld)
		wantReleased(t, g, l)
	})
}

// startShared submits a request for a share whose caller can leave at any moment.
func startShared(l *RWLock, lease *Lease) *acquisition {
	a := newAcquisition(&l.shares, lease)
	l.client.submit(l.lockCommand(lease, nil, wanted{shared: true, wait: true}), a, false)
	return a
}

// A caller that leaves holds nothing, whatever its request has come to.
func TestRWLock_SharedAbandoned(t *testing.T) {
	for name, test := range map[string]struct {
		contended bool
		early     bool // before the group applies the request
	}{
		"before the grant":     {false, true},
		"after the grant":      {false, false},
		"before it was queued": {true, true},
		"while it is queued":   {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, g := newFake(t)
			lease := mustOpen(t, c, fakeTTL)
			l, writer := newRWLock(t, c, LockConfig{Lease: lease}), newRWLock(t, c, LockConfig{Lease: lease})
			if test.contended {
				if _, err := writer.Acquire(t.Context(), true, nil); err != nil {
					t.Fatal(err)
				}
			}
			if test.early {
				g.hold()
			}
			a := startShared(l, lease)
			if !test.early {
				g.settle()
			}
			wantKind(t, a.abandon(&Fault{Kind: Interrupted}), Interrupted)
			g.release()
			if test.contended {
				if v := g.lock("x"); v == nil || v.Waiters != 0 {
					t.Errorf("the place in the queue was not withdrawn: %+v", v)
				}
				if err := writer.Release(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			wantReleased(t, g, l)
		})
	}
}

// The grant of an abandoned call is released, and not the share that another call of the
// handle has got.
func TestRWLock_SharedAbandonedBesideAnother(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	l := newRWLock(t, c, LockConfig{Lease: lease})
	a := startShared(l, lease)
	mustShare(t, l)
	wantKind(t, a.abandon(&Fault{Kind: Interrupted}), Interrupted)
	if v := g.lock("x"); v == nil || v.Shared != 1 || l.Holds() != 1 {
		t.Errorf("the group has %+v and the handle %d holds, want 1", v, l.Holds())
	}
	if err := l.ReleaseShared(t.Context(), nil); err != nil {
		t.Error(err)
	}
	wantReleased(t, g, l)
}

// After a loss the handle works again once each release owed was called, in either mode.
func TestRWLock_SharedLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l := newRWLock(t, c, LockConfig{})
		mustShare(t, l)
		mustShare(t, l)
		lease, err := c.ownLease(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lost := l.Lost()
		if err := c.CloseSession(t.Context(), lease.ID()); err != nil {
			t.Fatal(err)
		}
		<-lost
		for range 2 {
			_, err = l.AcquireShared(t.Context(), true, nil)
			wantKind(t, err, Lost)
			_, err = l.Acquire(t.Context(), true, nil)
			wantKind(t, err, Lost)
			_, err = l.Fence()
			wantKind(t, err, Lost)
			wantKind(t, l.Release(t.Context(), nil), NotHeld)
			wantKind(t, l.ReleaseShared(t.Context(), nil), Lost)
		}
		if l.Lost() != nil {
			t.Error("a handle that holds nothing has a channel for its loss")
		}
		mustShare(t, l)
		if v := g.lock("x"); v.Shared != 1 {
			t.Errorf("the group has %+v, want one share", v)
		}
	})
}

// A session that has ended without the knowledge of this process is not taken for a share.
func TestRWLock_SharedUnderEndedSession(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	l := newRWLock(t, c, LockConfig{Lease: lease})
	g.hold()
	failed := calling(t.Context(), l.AcquireShared)
	c.pursue(closeCommand(lease.id, false), ignore)
	g.release()
	err := <-failed
	if err == nil {
		_, err = l.Fence() // it was applied first
		wantKind(t, err, Lost)
		return
	}
	wantKind(t, err, Expired)
}

func TestRWLock_SharedReentrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l := newRWLock(t, c, LockConfig{Reentrant: true, Limit: 2})
		first := mustShare(t, l)
		writer := newRWLock(t, c, LockConfig{})
		wrote := calling(t.Context(), writer.Acquire)
		synctest.Wait()
		if second := mustShare(t, l); second != first { // or it would wait for itself
			t.Errorf("fences %d and %d of one share", first, second)
		}
		if v := g.lock("x"); v.Shared != 1 || v.Holds != 2 || v.Waiters != 1 {
			t.Errorf("the group has %+v, want one share with two holds, and a waiter", v)
		}
		_, err := l.AcquireShared(t.Context(), true, nil)
		if !isCode(err, wire.Code_LIMIT_REACHED) {
			t.Errorf("got %v, want the limit", err)
		}
		for range 2 {
			if err := l.ReleaseShared(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	})
}

// Calls that are under way together do not exceed the limit of their handle.
func TestRWLock_SharedReentrantAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l := newRWLock(t, c, LockConfig{Reentrant: true, Limit: 1})
		if _, err := c.ownLease(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.hold()
		first, second := calling(t.Context(), l.AcquireShared), calling(t.Context(), l.AcquireShared)
		synctest.Wait()
		g.release()
		errs := []error{<-first, <-second}
		if slices.Index(errs, nil) < 0 || !isCode(errs[0], wire.Code_LIMIT_REACHED) && !isCode(errs[1], wire.Code_LIMIT_REACHED) {
			t.Errorf("got %v, want one grant and the limit", errs)
		}
		if v := g.lock("x"); v.Shared != 1 || l.Holds() != 1 {
			t.Errorf("the group has %+v and the handle %d holds, want 1", v, l.Holds())
		}
		if err := l.ReleaseShared(t.Context(), nil); err != nil {
			t.Error(err)
		}
		wantReleased(t, g, l)
	})
}

// One owner does not wait for itself: there is no upgrade, and Downgrade is the other way.
func TestRWLock_OtherMode(t *testing.T) {
	c, _ := newFake(t)
	l := newRWLock(t, c, LockConfig{Reentrant: true})
	mustShare(t, l)
	_, err := l.Acquire(t.Context(), true, nil)
	wantKind(t, err, OtherMode)
	if err := l.ReleaseShared(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), true, nil); err != nil {
		t.Fatal(err)
	}
	_, err = l.AcquireShared(t.Context(), false, nil)
	wantKind(t, err, OtherMode)
}

// Without Reentrant, calls of one handle exclude each other as those of any two.
func TestRWLock_ModesExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l := newRWLock(t, c, LockConfig{})
		mustShare(t, l)
		_, err := l.Acquire(t.Context(), false, nil)
		if f, ok := err.(*Fault); !ok || !isCode(err, wire.Code_LOCKED) || !l.IsOwner(f.Reply) || !f.Reply.GetHolder().GetShared() {
			t.Errorf("got %v, want LOCKED by this handle", err)
		}
		wrote := calling(t.Context(), l.Acquire)
		synctest.Wait()
		_, err = l.AcquireShared(t.Context(), false, nil)
		if f, ok := err.(*Fault); !ok || !isCode(err, wire.Code_LOCKED) || !f.Reply.GetHolder().GetWaiting() {
			t.Errorf("got %v, want LOCKED because of the request that waits", err)
		}
		read := calling(t.Context(), l.AcquireShared)
		synctest.Wait()
		if err := l.ReleaseShared(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		_, err = l.AcquireShared(t.Context(), false, nil)
		if f, ok := err.(*Fault); !ok || !isCode(err, wire.Code_LOCKED) || !l.IsOwner(f.Reply) || f.Reply.GetHolder().GetShared() {
			t.Errorf("got %v, want LOCKED by this handle", err)
		}
		if err := l.Release(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil {
			t.Fatal(err)
		}
		if err := l.ReleaseShared(t.Context(), nil); err != nil {
			t.Error(err)
		}
		wantReleased(t, g, l)
	})
}

// Below the level a member would take a request for a share for one for the lock.
func TestRWLock_BelowLevel(t *testing.T) {
	c, g := newFake(t)
	l := new(RWLock)
	l.Init(c, LockConfig{Space: wire.Space_LOCK, Name: "x"})
	before := g.last()
	_, err := l.AcquireShared(t.Context(), true, nil)
	if !isCode(err, wire.Code_LEVEL) {
		t.Fatalf("got %v, want LEVEL", err)
	}
	_, err = l.Downgrade(t.Context(), nil)
	if !isCode(err, wire.Code_LEVEL) || g.last() != before {
		t.Errorf("got %v, want LEVEL, and nothing submitted", err)
	}
	if _, err := l.Acquire(t.Context(), true, nil); err != nil {
		t.Error(err)
	}
}
