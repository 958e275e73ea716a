// Package scale tests what a member uses after many calls. It measures the memory of
// its process, so each test runs alone.
package scale

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// slack is what the heap may grow by: the log in memory varies by half of it, see
// keepBytes in cluster. Over the cycles of the test that is 26 bytes for each.
const slack = 16 << 20

// A name that is not locked uses nothing: after many cycles over new names heap and
// disk are as before (Hazelcast #17709, #26526).
func TestLock_IdleNamesUseNothing(t *testing.T) {
	cycles := 400_000
	if testing.Short() {
		cycles = 50_000 // the race detector is ten times slower
	}
	dir := filepath.Join(t.TempDir(), "data")
	// The database's own tables are small, or their number at an instant decides.
	ctx := cluster.WithSeams(t.Context(), cluster.Seams{TableBytes: 1 << 20})
	n, err := conclave.Open(ctx, &conclave.Config{Dir: dir, Limits: conclave.Limits{Calls: 4096}})
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Kill(n)
	// The log, the database's caches and the runtime's pools fill up first.
	lockCycles(t, n, "warm-up", cycles/6)
	heap, disk := grouptest.HeapInUse(), grouptest.DiskInUse(t, dir)
	start := time.Now()
	lockCycles(t, n, "name", cycles)
	t.Logf("%.0f cycles/s", float64(cycles)/time.Since(start).Seconds())
	heapAfter, diskAfter := grouptest.HeapInUse(), grouptest.DiskInUse(t, dir)
	t.Logf("heap %d -> %d KiB, disk %d -> %d KiB", heap>>10, heapAfter>>10, disk>>10, diskAfter>>10)
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

// lockCycles locks and unlocks by 1,024 callers, each name twice.
func lockCycles(t *testing.T, n *conclave.Node, prefix string, cycles int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 1024 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(cycles); i = next.Add(1) {
				l := n.FencedLock(fmt.Sprint(prefix, "-", i%int64(cycles/2)))
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
