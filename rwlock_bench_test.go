package conclave_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// BenchmarkRLockLinger measures RLock and RUnlock of one lock by callers of one node, in a group of three, where
// the lock lingers: with one handle for all callers, and with one for each.
//
//	go test -run '^$' -bench RLockLinger -benchtime 3s .
func BenchmarkRLockLinger(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for name, handles := range map[string]int{"one handle": 1, "handles": callers} {
			b.Run(fmt.Sprintf("%d/%s", callers, name), func(b *testing.B) { benchmarkRLockLinger(b, callers, handles) })
		}
	}
}

func benchmarkRLockLinger(b *testing.B, callers, handles int) {
	g := grouptest.Start(b, 3, defaultTimes)
	var all []*conclave.RWLock
	for range handles {
		l := g.Nodes[1].RWLock("x", conclave.Linger(time.Minute))
		if _, err := l.RLock(b.Context()); err != nil { // the node has the tenure
			b.Fatal(err)
		}
		grouptest.Must(b, l.RUnlock(b.Context()))
		all = append(all, l)
	}
	var (
		left   atomic.Int64
		wg     sync.WaitGroup
		mu     sync.Mutex
		sample []time.Duration // guarded by mu
	)
	const batch, every = 256, 64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range callers {
		l := all[i%handles]
		wg.Go(func() {
			var took []time.Duration
			for left.Add(-batch) > -batch {
				for n := range batch {
					began := time.Time{}
					if n%every == 0 {
						began = time.Now()
					}
					if _, err := l.RLock(b.Context()); err != nil {
						b.Error(err)
						return
					}
					if n%every == 0 {
						took = append(took, time.Since(began))
					}
					if err := l.RUnlock(b.Context()); err != nil {
						b.Error(err)
						return
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sample = append(sample, took...)
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
	if slices.Sort(sample); len(sample) > 0 {
		b.ReportMetric(float64(sample[len(sample)*99/100].Nanoseconds()), "p99-ns")
	}
}
