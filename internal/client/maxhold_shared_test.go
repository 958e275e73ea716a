package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// bounded returns a client whose lease is renewed, and ends with the test's bubble.
func bounded(t *testing.T, test func(t *testing.T, c *Client, g *fakeGroup)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		raise(t, c, wire.LevelMaxHold)
		test(t, c, g)
	})
}

// Each share of a handle has an end of its own, and each release releases the one that ends first.
func TestMaxHold_Shares(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		read := func() {
			t.Helper()
			if _, err := l.AcquireShared(t.Context(), true, nil); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for range 3 {
			read()
			time.Sleep(10 * time.Second)
		}
		loss := l.Loss()
		if err := l.ReleaseShared(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if l.Loss() != loss {
			t.Error("a release has changed which loss is that of the others")
		}
		if err := l.Extend(t.Context(), maxHold); err != nil { // of the second
			t.Fatal(err)
		}
		wantLostAt(t, loss, began.Add(20*time.Second+trustedHold))
		_, err := l.AcquireShared(t.Context(), true, nil)
		wantOverdue(t, err)
		_, err = l.Fence()
		wantOverdue(t, err)
		wantOverdue(t, l.ReleaseShared(t.Context(), nil))
		if _, err := l.Fence(); err != nil {
			t.Errorf("the other share was lost too: %v", err)
		}
		next := l.Loss()
		read()
		wantLostAt(t, next, began.Add(30*time.Second+trustedHold))
		wantOverdue(t, l.ReleaseShared(t.Context(), nil))
		if err := l.ReleaseShared(t.Context(), nil); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		g.tick()
		if v := g.lock("x"); v != nil {
			t.Errorf("the group has %+v", v)
		}
	})
}

// A downgraded hold ends when it would have ended.
func TestMaxHold_Downgraded(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, _ *fakeGroup) {
		l, reader := newRWLock(t, c, LockConfig{MaxHold: maxHold}), newRWLock(t, c, LockConfig{MaxHold: maxHold / 2})
		began := time.Now()
		mustWrite(t, l)
		loss := l.Loss()
		time.Sleep(maxHold / 2)
		if _, err := l.Downgrade(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := reader.AcquireShared(t.Context(), true, nil); err != nil {
			t.Fatal(err)
		}
		if err := l.Extend(t.Context(), maxHold); err != nil {
			t.Fatal(err)
		}
		if err := l.Extend(t.Context(), maxHold/4); err != nil {
			t.Fatal(err)
		}
		wantLostAt(t, loss, began.Add(maxHold/2+trustedHold/4))
		wantOverdue(t, l.ReleaseShared(t.Context(), nil))
		if _, err := reader.Fence(); err != nil {
			t.Error(err)
		}
	})
}

// A share that another call of the handle was granted while the exclusive hold was downgraded is lost with
// that, for both.
func TestMaxHold_DowngradedBesideShare(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, _ *fakeGroup) {
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		began := time.Now()
		mustWrite(t, l)
		first := l.Loss()
		read := calling(t.Context(), l.AcquireShared)
		time.Sleep(maxHold / 2)
		if _, err := l.Downgrade(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil {
			t.Fatal(err)
		}
		wantLostAt(t, first, began.Add(trustedHold))
		for _, h := range l.shares.holds {
			select {
			case <-h.losing().Done():
			default:
				t.Errorf("the loss of share %d is open", h.now().share)
			}
		}
		wantOverdue(t, l.ReleaseShared(t.Context(), nil))
		if err := l.ReleaseShared(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
}

// An Extend whose share another call releases meanwhile extends one that is left.
func TestExtend_ShareReleasedMeanwhile(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		for range 2 {
			if _, err := l.AcquireShared(t.Context(), true, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		loss := l.Loss()
		g.hold()
		released := make(chan error, 1)
		extended := make(chan error, 1)
		h := l.present()
		go func() { released <- l.ReleaseShared(t.Context(), nil) }()
		synctest.Wait()
		l.mu.Lock()
		l.shares.holds = append(l.shares.holds, h) // as it was when Extend looked
		l.mu.Unlock()
		go func() { extended <- l.Extend(t.Context(), 2*maxHold) }()
		synctest.Wait()
		l.mu.Lock()
		l.shares.remove(h)
		l.mu.Unlock()
		began := time.Now()
		g.release()
		if err := <-released; err != nil {
			t.Error(err)
		}
		if err := <-extended; err != nil {
			t.Fatalf("Extend: %v, with a share left", err)
		}
		wantLostAt(t, loss, began.Add(2*trustedHold))
	})
}

// Of calls of Extend that are under way together each moves the end of another share, in whatever order they began: an end
// changes with the outcome alone.
func TestExtend_SharesAtOnce(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		const readers = 3
		for range readers {
			mustShare(t, l)
			time.Sleep(time.Second)
		}
		loss := l.Loss()
		g.hold()
		extended := make(chan error, readers+1)
		for range readers + 1 { // one more than there are shares
			go func() { extended <- l.Extend(t.Context(), 2*maxHold) }()
		}
		synctest.Wait()
		began := time.Now()
		g.release()
		for range readers + 1 {
			if err := <-extended; err != nil {
				t.Error(err)
			}
		}
		wantLostAt(t, loss, began.Add(2*trustedHold))
		for range readers {
			wantOverdue(t, l.ReleaseShared(t.Context(), nil))
		}
	})
}

// An Extend whose outcome is unknown has returned, so the next one moves the end of the same share.
func TestExtend_ShareWithUnknownOutcome(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		g.set(func() { g.sent = true })
		l := newRWLock(t, c, LockConfig{MaxHold: maxHold})
		mustShare(t, l)
		time.Sleep(maxHold / 2)
		mustShare(t, l)
		began, loss := time.Now(), l.Loss()
		g.hold()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantKind(t, l.Extend(ctx, 4*maxHold), Unknown)
		extended := make(chan error, 1)
		go func() { extended <- l.Extend(t.Context(), 2*maxHold) }()
		synctest.Wait()
		g.release()
		if err := <-extended; err != nil {
			t.Error(err)
		}
		wantLostAt(t, loss, began.Add(trustedHold)) // of the second share
	})
}
