package client

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// The client's own lease is retired again and again while calls acquire. None fails: each goes on under the next lease, and a lock that no other
// call wants is granted also without waiting.
func TestRetire_WhileCallsAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := newLingering(t)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		var releasing sync.RWMutex // a release under way has taken its hold off the lease
		var users sync.WaitGroup
		for i := range 6 {
			users.Go(func() {
				l := new(Lock)
				l.Init(c, LockConfig{Space: wire.Space_LOCK, Name: fmt.Sprint("l", i), Linger: time.Duration(i%2) * time.Millisecond, Reentrant: i%3 == 0})
				for n := 0; ctx.Err() == nil; n++ {
					if _, err := l.Acquire(t.Context(), n%2 == 0, nil, nil); err != nil {
						t.Error(i, err)
					}
					time.Sleep(time.Duration(n%5) * 100 * time.Microsecond)
					releasing.RLock()
					if err := l.Release(t.Context(), nil); err != nil {
						t.Error(i, err)
					}
					releasing.RUnlock()
					time.Sleep(time.Duration(n%7) * time.Millisecond)
				}
			})
		}
		retired := 0
		for ctx.Err() == nil {
			releasing.Lock()
			if own := c.leases.ownOf(nil); own != nil && own.retire() {
				own.closing.begun.Store(true)
				own.closeInGroup()
				retired++
			}
			releasing.Unlock()
			time.Sleep(50 * time.Microsecond)
		}
		users.Wait()
		if retired < 3 {
			t.Errorf("the lease was retired %d times only", retired)
		}
	})
}
