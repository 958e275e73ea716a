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

// BenchmarkScale holds much at once in a group of three members in this process,
// with real files: locks under the node's own session, and sessions. It reports
// what each costs in memory (of all three members and the handles together) and
// on one member's disk, what the process does while nothing but renewals goes
// on, and how long a member takes to come back from its own disk, and by a
// snapshot.
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

// holder says by an error that it has lost what it holds.
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
		heap, disk := heapInUse(), diskInUse(b, g.Configs[away].Dir)

		start := time.Now()
		held := holdMany(b, node, n, hold)
		b.ReportMetric(float64(n)/time.Since(start).Seconds(), "acquired/s")
		g.AwaitApplied(away)
		b.ReportMetric(float64(heapInUse()-heap)/float64(n), "heap-B/each")
		b.ReportMetric(float64(diskInUse(b, g.Configs[away].Dir)-disk)/float64(n), "disk-B/each")

		idle(b, node)
		b.ReportMetric(comeBack(b, g, away, 0, 0), "restart-s")
		b.ReportMetric(comeBack(b, g, away, 1000, 1), "install-s")
		b.ReportMetric(0, "ns/op") // says nothing here
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

// idle reports what the process does for three renewals' time.
func idle(b *testing.B, node *conclave.Node) {
	cpu, entries, start := cpuTime(b), node.Status().Applied, time.Now()
	<-time.After(10 * time.Second) // what is measured is that time passes
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

// comeBack kills a member and opens it again after the others have made so many
// entries. It returns the seconds until the member has all that they have.
func comeBack(b *testing.B, g *grouptest.Group, away, entries int, snapshots uint64) float64 {
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
