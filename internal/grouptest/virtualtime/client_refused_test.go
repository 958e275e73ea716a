package virtualtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// The only member that can serve a client refuses its connections for a moment, as one that is
// restarted does, and the others do not answer: the client tries the first again meanwhile.
func TestClient_RefusedWhileOthersAreSilent(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, 3 * time.Second, 10 * time.Second} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
				var refuses atomic.Bool
				cfg := &conclave.ClientConfig{SessionTTL: ttl, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
					if addr == g.Nodes[0].Addr() && refuses.Load() {
						return nil, errors.New("connection refused")
					}
					return g.Net.Dial(ctx, outsider, addr)
				}}
				for i := 1; i < outsider; i++ {
					g.Net.Partition(i, outsider)
				}
				c := grouptest.Dial(g.T, cfg, g.Nodes[:outsider]...)
				lock := c.FencedLock("x")
				fence := grouptest.MustLock(g.T, lock)
				for range 5 {
					refuses.Store(true)
					g.Net.Reset(outsider)
					pass(ttl / 4)
					refuses.Store(false)
					began := time.Now()
					wantHeld(g, c, lock, fence)
					if took := time.Since(began); took > ttl/4 {
						g.T.Errorf("the client is connected again after %v", took)
					}
					pass(ttl)
				}
			}, grouptest.Newcomers(1))
		})
	}
}
