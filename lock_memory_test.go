package conclave_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Idle names use nothing: after a million cycles over 100,000 names heap and disk are
// as before (Hazelcast #17709, #26526). It measures memory, so that no other test may
// run beside it.
func TestLock_IdleNamesUseNothing(t *testing.T) {
	cycles, names := 1_000_000, 100_000
	if testing.Short() {
		cycles, names = 50_000, 5_000 // the race detector is ten times slower
	}
	dir := filepath.Join(t.TempDir(), "data")
	n, err := conclave.Open(t.Context(), &conclave.Config{Dir: dir, Limits: conclave.Limits{Calls: 4096}})
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Kill(n)
	run := func(cycles int) {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range 1024 {
			wg.Go(func() {
				for i := next.Add(1); i <= int64(cycles); i = next.Add(1) {
					l := n.FencedLock(fmt.Sprint("name-", i%int64(names)))
					if _, err := l.Lock(t.Context()); err != nil {
						t.Error(err)
						return
					}
					if err := l.Unlock(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	// The log, the database's caches and the runtime's pools fill up first.
	run(cycles / 10)
	heap, disk := heapInUse(), diskInUse(t, dir)
	start := time.Now()
	run(cycles)
	t.Logf("%.0f cycles/s", float64(cycles)/time.Since(start).Seconds())
	heapAfter, diskAfter := heapInUse(), diskInUse(t, dir)
	t.Logf("heap %d -> %d KiB, disk %d -> %d KiB", heap>>10, heapAfter>>10, disk>>10, diskAfter>>10)
	const slack = 24 << 20 // of what the log may keep, see cluster's keepBytes
	if heapAfter > heap+slack {
		t.Errorf("the heap grew from %d to %d", heap, heapAfter)
	}
	if diskAfter > disk+2*slack {
		t.Errorf("the directory grew from %d to %d", disk, diskAfter)
	}
	if list, err := grouptest.Collect(n.Locks(t.Context(), "")); err != nil || len(list) != 0 {
		t.Errorf("%d locks remain, %v", len(list), err)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func diskInUse(t testing.TB, dir string) (bytes uint64) {
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // removed while walking
		}
		if info, err := d.Info(); err == nil {
			bytes += uint64(info.Size())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
