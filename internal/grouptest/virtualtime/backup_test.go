package virtualtime

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A backup whose context ends while it waits for a quorum has written nothing.
func TestBackup_CanceledWithoutQuorum(t *testing.T) {
	t.Parallel()
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		g.Leader()
		g.Kill(0, 1)
		pass(3 * election)
		ctx, cancel := context.WithCancel(g.T.Context())
		time.AfterFunc(election/2, cancel)
		began := time.Now()
		var b bytes.Buffer
		err := g.Nodes[2].Backup(ctx, &b)
		if !errors.Is(err, context.Canceled) || errors.Is(err, conclave.ErrUnavailable) || b.Len() > 0 {
			g.T.Errorf("%v, %d bytes", err, b.Len())
		}
		wantAt(g.T, "the backup ended", time.Now(), began.Add(election/2))
	})
}
