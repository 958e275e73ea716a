package conclave_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/grouptest"
)

// BenchmarkRestart measures Open on the directory of a group of one that was killed under
// load: what lies behind the last checkpoint is applied again. How much that is depends on
// the moment, so the longest of many counts.
//
//	go test -run '^$' -bench Restart -benchtime 20x .
func BenchmarkRestart(b *testing.B) {
	const callers = 1024
	g := grouptest.Start(b, 1, defaultTimes)
	var longest, sum time.Duration
	for round := range b.N {
		n := g.Nodes[0]
		warmUp(b, n)
		var left atomic.Int64
		left.Store(int64(20_000 + 7_919*(round%5))) // cycles
		var wg sync.WaitGroup
		for i := range callers {
			l := n.FencedLock(fmt.Sprint("lock-", i))
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if _, err := l.Lock(b.Context()); err != nil {
						b.Error(err)
						return
					}
					if err := l.Unlock(b.Context()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		g.Kill(0)
		began := time.Now()
		g.Start(0)
		took := time.Since(began)
		longest, sum = max(longest, took), sum+took
	}
	b.ReportMetric(float64(longest.Milliseconds()), "longest-ms")
	b.ReportMetric(float64((sum / time.Duration(b.N)).Milliseconds()), "mean-ms")
}
