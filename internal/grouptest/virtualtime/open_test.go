package virtualtime

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestOpen_CancelledWithCause(t *testing.T) {
	t.Parallel()
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		g.Leader()
		g.KillAll()
		cause := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(election, func() { cancel(cause) })
		n, err := g.OpenWith(ctx, 0) // without a quorum
		if err == nil {
			grouptest.Kill(n)
		}
		grouptest.WantError(t, err, conclave.ErrUnavailable)
		grouptest.WantError(t, err, cause)
		grouptest.WantError(t, err, context.Canceled)
	})
}
