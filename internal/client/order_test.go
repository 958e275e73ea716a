package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// The group may apply commands in another order than that of their submission, since a
// lost one is sent again. A handle that holds nothing does not find itself in the way.
func TestLock_RequestsOfHandleInOrder(t *testing.T) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for _, test := range []struct {
		name    string
		reorder bool                                      // by the group
		undo    func(t *testing.T, g *fakeGroup, l *Lock) // leaves something of the handle under way
	}{
		{"released, without waiting", true, func(t *testing.T, g *fakeGroup, l *Lock) {
			mustAcquire(t, l)
			g.hold()
			wantKind(t, l.Release(done, nil), Unknown)
		}},
		{"abandoned before the first outcome", false, func(t *testing.T, g *fakeGroup, l *Lock) {
			g.hold()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, true, nil, nil)
			wantKind(t, err, Interrupted)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, g := newFake(t)
				g.set(func() { g.sent = true })
				lease := mustOpen(t, c, time.Hour)
				l := new(Lock)
				l.Init(c, LockConfig{Lease: lease, Space: wire.Space_LOCK, Name: "x", Reentrant: true, Limit: 1})
				test.undo(t, g, l)
				acquired := make(chan error, 1)
				go func() {
					_, err := l.Acquire(t.Context(), true, nil, nil)
					acquired <- err
				}()
				synctest.Wait()
				if test.reorder {
					g.set(func() { slices.Reverse(g.queue) })
				}
				g.release()
				if err := <-acquired; err != nil {
					t.Errorf("the handle holds nothing, and gets %v", err)
				}
				if v := g.lock("x"); v == nil || v.Holds != 1 {
					t.Errorf("the group has %+v, want one hold", v)
				}
				c.StopRenewing()
			})
		})
	}
}

// A request that waits for an earlier one ends with its context, and with its session.
func TestLock_WaitForOrderEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		lease := mustOpen(t, c, time.Hour)
		l := newLock(c, lease, "x")
		mustAcquire(t, l)
		g.hold()
		done, cancel := context.WithCancel(t.Context())
		cancel()
		wantKind(t, l.Release(done, nil), Unknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, true, nil, nil)
		wantKind(t, err, Unavailable)
		failed := make(chan error, 1)
		go func() {
			_, err := l.Acquire(t.Context(), true, nil, nil)
			failed <- err
		}()
		synctest.Wait()
		lease.end(endedByGroup(), lost)
		wantKind(t, <-failed, Expired)
		g.release()
		c.StopRenewing()
	})
}

// A request for the lock does not overtake the releases of the handle's shares, and a request
// for a share does not wait for them: with many callers there is always one under way.
func TestRWLock_SharedReleasesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		g.set(func() { g.sent = true })
		l := newRWLock(t, c, LockConfig{Lease: mustOpen(t, c, time.Hour)})
		mustShare(t, l)
		g.hold()
		wantKind(t, l.ReleaseShared(done(), nil), Unknown)
		read := calling(t.Context(), l.AcquireShared)
		synctest.Wait()
		g.mu.Lock()
		submitted := len(g.queue)
		g.mu.Unlock()
		if submitted != 2 {
			t.Errorf("%d commands were submitted, want the release and a request", submitted)
		}
		wrote := calling(t.Context(), func(ctx context.Context, _ bool, tr *Trace) (uint64, error) { return l.Acquire(ctx, false, tr) })
		synctest.Wait()
		g.set(func() { slices.Reverse(g.queue) }) // the release comes last
		g.release()
		if err := <-read; err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; !isCode(err, wire.Code_LOCKED) {
			t.Errorf("got %v beside a share", err)
		}
		g.hold()
		wantKind(t, l.ReleaseShared(done(), nil), Unknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, false, nil)
		wantKind(t, err, Unavailable)
		wrote = calling(t.Context(), func(ctx context.Context, _ bool, tr *Trace) (uint64, error) { return l.Acquire(ctx, false, tr) })
		synctest.Wait()
		g.release()
		if err := <-wrote; err != nil {
			t.Errorf("the handle holds nothing, and gets %v", err)
		}
	})
}

// A request for the lock that waits for the releases of the handle's shares ends with its session, as one that waits for
// anything else: the releases are under way for as long as the group does not answer.
func TestRWLock_WaitForSharesEnds(t *testing.T) {
	for name, wait := range map[string]bool{"Lock": true, "TryLock": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, g := newFake(t)
				defer c.StopRenewing()
				lease := mustOpen(t, c, time.Hour)
				l := newRWLock(t, c, LockConfig{Lease: lease})
				mustShare(t, l)
				g.hold()
				wantKind(t, l.ReleaseShared(done(), nil), Unknown)
				acquire := func(ctx context.Context, _ bool, tr *Trace) (uint64, error) { return l.Acquire(ctx, wait, tr) }
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				waiting := calling(ctx, acquire)
				synctest.Wait()
				lease.end(endedByGroup(), lost)
				wantKind(t, <-waiting, Expired)
				wantKind(t, <-calling(ctx, acquire), Expired)
				g.release()
			})
		})
	}
}

// Under the client's own lease the request is made under the next one. It waits there for the releases under the former one.
func TestRWLock_WaitForSharesUnderNextLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		l := newRWLock(t, c, LockConfig{})
		mustShare(t, l)
		former, err := c.ownLease(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g.hold()
		wantKind(t, l.ReleaseShared(done(), nil), Unknown)
		wrote := calling(t.Context(), func(ctx context.Context, _ bool, tr *Trace) (uint64, error) { return l.Acquire(ctx, false, tr) })
		synctest.Wait()
		former.end(endedByGroup(), lost)
		synctest.Wait()                           // the next one is being opened
		g.set(func() { slices.Reverse(g.queue) }) // the release comes last
		g.release()
		if err := <-wrote; err != nil {
			t.Errorf("the handle holds nothing, and gets %v", err)
		}
		if v := g.lock("x"); v == nil || v.Shared != 0 || v.Holds != 1 {
			t.Errorf("the group has %+v, want one hold", v)
		}
	})
}
