//go:build unix

package conclave_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// BenchmarkScale holds many locks of the node's own session, and many sessions, in a
// group of three members in this process with real files. It reports the memory of
// each (three members and the handles together), the space on one member's disk, the
// load of renewals alone, and the time that a member takes to catch up after a
// restart from its disk and by a snapshot.
//
//	go test -run '^$' -bench Scale -benchtime 1x -timeout 30m .
func BenchmarkScale(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("locks/%d", n), func(b *testing.B) {
			benchmarkScale(b, n, func(ctx context.Context, node *conclave.Node, i int) (holder, error) {
				l := node.FencedLock(fmt.Sprintf("orders/%07d", i))
				_, err := l.Lock(ctx)
				return l, err
			})
		})
	}
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("sessions/%d", n), func(b *testing.B) {
			benchmarkScale(b, n, func(ctx context.Context, node *conclave.Node, _ int) (holder, error) {
				s, err := node.NewSession(ctx, nil)
				return sessionHolder{s}, err
			})
		})
	}
}

// holder returns an error when it has lost what it holds.
type holder interface {
	Fence() (conclave.Fence, error)
}

type sessionHolder struct{ *conclave.Session }

func (h sessionHolder) Fence() (conclave.Fence, error) { return 0, h.Err() }

func benchmarkScale(b *testing.B, n int, hold func(context.Context, *conclave.Node, int) (holder, error)) {
	for b.Loop() {
		g := grouptest.Start(b, 3, defaultTimes, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) {
			s.KeepEntries = 200 // so that a snapshot is needed soon
		}))
		leader := g.Leader()
		node, away := g.Nodes[leader], (leader+1)%3
		warmUp(b, node)
		heap, disk := grouptest.HeapInUse(), grouptest.DiskInUse(b, g.Configs[away].Dir)

		start := time.Now()
		held := holdMany(b, node, n, hold)
		b.ReportMetric(float64(n)/time.Since(start).Seconds(), "acquired/s")
		g.AwaitApplied(away)
		b.ReportMetric(float64(grouptest.HeapInUse()-heap)/float64(n), "heap-B/each")
		b.ReportMetric(float64(grouptest.DiskInUse(b, g.Configs[away].Dir)-disk)/float64(n), "disk-B/each")

		idle(b, node)
		b.ReportMetric(catchUp(b, g, away, 0, 0), "restart-s")
		b.ReportMetric(catchUp(b, g, away, 1000, 1), "install-s")
		b.ReportMetric(0, "ns/op") // meaningless here
		for _, h := range held {
			if _, err := h.Fence(); err != nil {
				b.Fatal(err)
			}
		}
		g.KillAll()
	}
}

// holdMany acquires by 1,024 callers.
func holdMany(b *testing.B, node *conclave.Node, n int, hold func(context.Context, *conclave.Node, int) (holder, error)) []holder {
	held := make([]holder, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 1024 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				var err error
				if held[i], err = hold(b.Context(), node, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return held
}

// idle reports the load of three renewals.
func idle(b *testing.B, node *conclave.Node) {
	cpu, entries, start := cpuTime(b), node.Status().Applied, time.Now()
	<-time.After(10 * time.Second) // three renewals
	elapsed := time.Since(start).Seconds()
	b.ReportMetric(1000*(cpuTime(b)-cpu).Seconds()/elapsed, "idle-cpu-ms/s")
	b.ReportMetric(float64(node.Status().Applied-entries)/elapsed, "idle-entries/s")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// catchUp kills a member, lets the others append so many entries and starts it again.
// It returns the seconds until it has caught up.
func catchUp(b *testing.B, g *grouptest.Group, away, entries int, snapshots uint64) float64 {
	b.Helper()
	g.Kill(away)
	l := g.Nodes[g.Leader()].FencedLock("busy")
	for range entries / 2 {
		grouptest.MustLock(b, l)
		grouptest.MustUnlock(b, l)
	}
	start := time.Now()
	g.Start(away)
	g.AwaitApplied(away)
	elapsed := time.Since(start).Seconds()
	g.WantInstalled(away, snapshots)
	return elapsed
}
