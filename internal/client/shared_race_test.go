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
