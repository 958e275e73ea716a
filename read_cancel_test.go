package conclave_test

import (
	"context"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Reads are cancelled while they run: the loop must not write to what the caller
// returns. This needs the race detector.
func TestRead_CancelledWhileRunning(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		if _, err := n.KV().Put(t.Context(), "a", []byte("1")); err != nil {
			t.Fatal(err)
		}
		e := n.Election("e")
		reads := []func(ctx context.Context){
			func(ctx context.Context) { _, _ = n.KV().Keys(ctx, "", "") },
			func(ctx context.Context) { _, _ = n.KV().List(ctx, "", conclave.Stale()) },
			func(ctx context.Context) { _, _ = n.KV().Get(ctx, "a") },
			func(ctx context.Context) { _, _ = n.KV().Index(ctx) },
			func(ctx context.Context) { _, _ = e.Leader(ctx) },
			func(ctx context.Context) { _, _ = grouptest.Collect(n.Locks(ctx, "")) },
			func(ctx context.Context) { _, _ = grouptest.Collect(n.Sessions(ctx)) },
			func(ctx context.Context) { _, _ = n.FencedLock("x").Info(ctx) },
			func(ctx context.Context) { _, _ = n.Semaphore("s", 1).Info(ctx) },
			func(ctx context.Context) { _ = n.CheckSequencer(ctx, conclave.Sequencer{Key: "a", LockIndex: 1}) },
		}
		var callers sync.WaitGroup
		for _, read := range reads {
			for range 4 {
				callers.Go(func() {
					for range 100 {
						ctx, cancel := context.WithCancel(t.Context())
						callers.Go(cancel)
						read(ctx)
					}
				})
			}
		}
		callers.Wait()
	})
}
