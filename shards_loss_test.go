package conclave_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Run joins again after a loss of the session that a lock of the same node reports to a work, perhaps before the work's context ends.
func TestShards_LossReportedByLock(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		const count = 4
		locked := make(chan begun, 100)
		works := does{}
		for shard := range count {
			l := n.FencedLock(fmt.Sprint("lock-", shard))
			works[shard] = func(ctx context.Context) error {
				if _, err := l.Lock(ctx); err != nil {
					return err
				}
				locked <- begun{shard: shard}
				select {
				case <-l.Lost():
				case <-ctx.Done():
				}
				return l.Unlock(context.WithoutCancel(ctx))
			}
		}
		w := runShardsThat(t, n.Shards("orders", count), works)
		for range 10 {
			for range count {
				select {
				case <-locked:
				case err := <-w.Err:
					t.Fatalf("Run returns at a loss of the session: %v", err)
				}
			}
			grouptest.Must(t, n.CloseSession(t.Context(), grouptest.OwnSession(t, n)))
		}
		next(t, locked, count)
		w.stop()
	})
}

// ErrLockOwnershipLost of a lock of another session ends Run, as any error of a work does.
func TestShards_WorkFailsWithLossOfAnotherSession(t *testing.T) {
	n := grouptest.Alone(t)
	other := grouptest.MustSession(t, n, nil)
	l := other.FencedLock("x")
	grouptest.MustLock(t, l)
	w := runShardsThat(t, n.Shards("orders", 2), does{1: func(context.Context) error {
		<-l.Lost()
		return l.Unlock(context.Background())
	}})
	next(t, w.began, 2)
	grouptest.Must(t, n.CloseSession(t.Context(), other.ID()))
	grouptest.WantError(t, <-w.Err, conclave.ErrLockOwnershipLost)
}
