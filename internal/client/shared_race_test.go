package client

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
