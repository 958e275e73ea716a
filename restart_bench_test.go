package conclave_test

import (
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
		cycle(b, n, callers, callers, 20_000+7_919*(round%5))
		g.Kill(0)
		began := time.Now()
		g.Start(0)
		took := time.Since(began)
		longest, sum = max(longest, took), sum+took
	}
	b.ReportMetric(float64(longest.Milliseconds()), "longest-ms")
	b.ReportMetric(float64((sum / time.Duration(b.N)).Milliseconds()), "mean-ms")
}
