package virtualtime

import (
	"context"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestTransferLeadership_ContextDone(t *testing.T) {
	t.Parallel()
	transfer := func(n *conclave.Node) error {
		ctx, cancel := context.WithTimeout(context.Background(), election)
		defer cancel()
		return n.TransferLeadership(ctx, 0)
	}
	t.Run("no leader known", func(t *testing.T) {
		grouptest.InBubble(t, 3, func(g *grouptest.Group) {
			i := (g.Leader() + 1) % 3
			g.Kill(g.Others(i)...)
			pass(3 * election)
			err := transfer(g.Nodes[i])
			grouptest.WantError(t, err, conclave.ErrUnavailable)
			grouptest.WantError(t, err, context.DeadlineExceeded)
		})
	})
	t.Run("leader not reachable", func(t *testing.T) {
		grouptest.InBubble(t, 3, func(g *grouptest.Group) {
			i := (g.Leader() + 1) % 3
			g.Net.Isolate(i)
			ctx, cancel := context.WithTimeout(context.Background(), heartbeat)
			defer cancel()
			err := g.Nodes[i].TransferLeadership(ctx, 0)
			grouptest.WantError(t, err, conclave.ErrUnknown)
			grouptest.WantError(t, err, context.DeadlineExceeded)
		})
	})
}
