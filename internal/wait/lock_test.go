package wait

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What waits for the lock lets virtual time pass, so that its holder can finish.
func TestLock(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		began := time.Now()
		var lock Lock
		var inside int
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				lock.Acquire()
				defer lock.Release()
				if inside++; inside > 1 {
					t.Error("two holders at a time")
				}
				time.Sleep(time.Second)
				inside--
			})
		}
		all.Wait()
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("three holders took %v", d)
		}
	})
}
