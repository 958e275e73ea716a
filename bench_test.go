package conclave_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// BenchmarkCycle measures lock and unlock in a group of three members in this
// process, over TCP on loopback and with real files: callers that each have a
// lock of their own, and callers that share one. All callers are on the leader's
// node, or on another.
//
//	go test -run '^$' -bench Cycle -benchtime 3s .
func BenchmarkCycle(b *testing.B) {
	for _, at := range []string{"leader", "follower"} {
		for _, callers := range []int{1, 64, 256, 1024} {
			b.Run(fmt.Sprintf("%s/own/%d", at, callers), func(b *testing.B) { benchmarkCycle(b, at, callers, callers) })
		}
		for _, callers := range []int{16, 64} {
			b.Run(fmt.Sprintf("%s/shared/%d", at, callers), func(b *testing.B) { benchmarkCycle(b, at, callers, 1) })
		}
	}
}

func benchmarkCycle(b *testing.B, at string, callers, locks int) {
	g := grouptest.Start(b, 3, defaultTimes)
	leader := g.Leader()
	n := g.Nodes[leader]
	if at == "follower" {
		n = g.Nodes[(leader+1)%3]
	}
	warmUp(b, n)
	entries := n.Status().Applied
	b.ResetTimer()
	cycle(b, n, callers, locks, b.N)
	b.ReportMetric(float64(2*b.N)/float64(n.Status().Applied-entries), "commands/entry")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

// cycle has callers lock and unlock as often as cycles says, all together.
func cycle(b *testing.B, n *conclave.Node, callers, locks, cycles int) {
	var left atomic.Int64
	left.Store(int64(cycles))
	var wg sync.WaitGroup
	for i := range callers {
		l := n.FencedLock(fmt.Sprint("lock-", i%locks))
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
}

// defaultTimes are those of a program that sets none.
func defaultTimes(g *grouptest.Group) {
	grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		c.HeartbeatInterval, c.ElectionTimeout, c.SessionTTL = 100*time.Millisecond, time.Second, 10*time.Second
	})(g)
}

// warmUp opens the node's session before the measurement.
func warmUp(b *testing.B, n *conclave.Node) {
	l := n.FencedLock("warm")
	grouptest.MustLock(b, l)
	grouptest.MustUnlock(b, l)
}
