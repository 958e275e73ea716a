package virtualtime

import (
	"context"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A partition cuts the graceful shutdown short while gossip still shows a quorum.
func TestClose_PartitionedJustBefore(t *testing.T) {
	t.Parallel()
	close := func(t *testing.T, ctx context.Context) (err error) {
		grouptest.InBubble(t, 3, func(g *grouptest.Group) {
			i := (g.Leader() + 1) % 3
			g.Net.Isolate(i)
			n := g.Nodes[i]
			g.Nodes[i] = nil
			err = n.Close(ctx)
		})
		return err
	}
	t.Run("context not done", func(t *testing.T) {
		if err := close(t, context.Background()); err != nil {
			t.Errorf("the context was not done, and Close returned %v", err)
		}
	})
	t.Run("context done before", func(t *testing.T) {
		err := close(t, grouptest.Expired())
		grouptest.WantError(t, err, context.Canceled)
		grouptest.WantError(t, err, conclave.ErrUnknown)
	})
}

// A node that closes right after its first lock releases it, though gossip has not seen the
// other members yet.
func TestClose_BeforeGossip(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		grouptest.InBubble(t, 3, func(g *grouptest.Group) {
			closing := (g.Leader() + i) % 3
			grouptest.MustLock(g.T, g.Nodes[closing].FencedLock("x"))
			n := g.Nodes[closing]
			g.Nodes[closing] = nil
			grouptest.Must(g.T, n.Close(g.T.Context()))
			began := time.Now()
			grouptest.MustLock(g.T, g.Nodes[(closing+1)%3].FencedLock("x"))
			wantBetween(g.T, "the lock was granted", time.Now(), began, began.Add(2*election))
		}, grouptest.WithoutGossip)
	}
}
