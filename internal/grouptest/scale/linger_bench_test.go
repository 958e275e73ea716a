package scale

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// BenchmarkLinger measures cycles of Lock and Unlock on a lock that lingers on its node:
// of one caller; of 64 callers with a handle each; and of two nodes by turns, which recall
// it from each other, beside the same by handles that do not linger.
func BenchmarkLinger(b *testing.B) {
	g := grouptest.Start(b, 3)
	g.AwaitLingering()
	leader := g.Leader()
	linger := conclave.Linger(time.Hour)
	b.Run("Reacquire", func(b *testing.B) {
		l := g.Nodes[leader].FencedLock("one", linger)
		cycle(b, l)
		b.ReportAllocs()
		for b.Loop() {
			cycle(b, l)
		}
	})
	b.Run("Callers64", func(b *testing.B) {
		var left atomic.Int64
		left.Store(int64(b.N))
		var callers sync.WaitGroup
		for range 64 {
			l := g.Nodes[leader].FencedLock("many", linger)
			callers.Go(func() {
				for left.Add(-1) >= 0 {
					cycle(b, l)
				}
			})
		}
		callers.Wait()
	})
	for name, opts := range map[string][]conclave.LockOption{"Recall": {linger}, "Release": nil} {
		b.Run(name, func(b *testing.B) {
			others := g.Others(leader)
			for i := 0; b.Loop(); i++ {
				cycle(b, g.Nodes[others[i%2]].FencedLock(name, opts...))
			}
		})
	}
}

func cycle(b *testing.B, l *conclave.FencedLock) {
	if _, err := l.Lock(b.Context()); err != nil {
		b.Error(err)
	}
	if err := l.Unlock(b.Context()); err != nil {
		b.Error(err)
	}
}
