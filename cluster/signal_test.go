package cluster

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What waits for the lock lets virtual time pass, so that its holder can finish.
func TestLongLock(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		began := time.Now()
		var lock longLock
		var inside int
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				lock.acquire()
				defer lock.release()
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
