package virtualtime

import (
	"context"
	"testing"

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
