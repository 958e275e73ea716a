package conclave_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// BenchmarkRecall measures how long a writer waits for a lock that all three nodes of a group keep shared, until they have
// given it up on its request; and, to compare, for a plain lock that another node releases while the writer asks for it.
//
//	go test -run '^$' -bench Recall -benchtime 2s .
func BenchmarkRecall(b *testing.B) {
	b.Run("kept shared by three nodes", func(b *testing.B) {
		g := grouptest.Start(b, 3, defaultTimes)
		writer := g.Nodes[1].RWLock("x")
		measureGrants(b, writer.Lock, writer.Unlock, func() {
			for _, n := range g.Nodes {
				l := n.RWLock("x", conclave.Linger(time.Minute))
				_, err := l.RLock(b.Context())
				grouptest.Must(b, err)
				grouptest.Must(b, l.RUnlock(b.Context()))
			}
		}, func() {})
	})
	b.Run("released by another node", func(b *testing.B) {
		g := grouptest.Start(b, 3, defaultTimes)
		writer, other := g.Nodes[1].FencedLock("x"), g.Nodes[2].FencedLock("x")
		measureGrants(b, writer.Lock, writer.Unlock, func() {
			grouptest.MustLock(b, other)
		}, func() { grouptest.Must(b, other.Unlock(b.Context())) })
	})
}

// measureGrants measures lock, before which prepare runs, and beside which release runs.
func measureGrants(b *testing.B, lock func(context.Context) (conclave.Fence, error), unlock func(context.Context) error, prepare, release func()) {
	for b.Loop() {
		b.StopTimer()
		prepare()
		var wg sync.WaitGroup
		b.StartTimer()
		wg.Go(release)
		_, err := lock(b.Context())
		b.StopTimer()
		grouptest.Must(b, err)
		wg.Wait()
		grouptest.Must(b, unlock(b.Context()))
		b.StartTimer()
	}
}
