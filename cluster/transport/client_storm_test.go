package transport

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// persist connects, with waits that double, until the member answers. Other handshakes may have
// taken the place of the last one after the client had proven its key.
func persist(ctx context.Context, d *Dialer, addr string, n int) (*ClientConn, error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		c, err := d.Connect(ctx, Target{Addr: addr}, clientKey(n), wire.ID{})
		if err == nil {
			c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Renew{Renew: 1}}, 0)
			err = c.Read(new(wire.MemberFrame))
		}
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Clients that connect all at once, from the host of a member or from elsewhere, all get
// through, and a member that restarts meanwhile connects too.
func TestClientConn_Storm(t *testing.T) {
	for name, known := range map[string]bool{"from the host of a member": true, "from elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			const clients = 600
			a, _ := serving(t, func(c *Config) { c.Member = func(id uint64) bool { return id == m(1) || id == m(2) } })
			b := start(t, identity(2), listenTCP(t), func(c *Config) { c.Member = func(id uint64) bool { return id == m(1) || id == m(2) } })
			if known {
				a.SetPeer(m(2), b.addr)
			}
			d := dialer(t, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			began := time.Now()
			var wg sync.WaitGroup
			var failed atomic.Int64
			for n := range clients {
				wg.Go(func() {
					if _, err := persist(ctx, d, a.addr, n); err != nil {
						failed.Add(1)
					}
				})
			}
			b.SetPeer(m(1), a.addr)
			awaitConnected(t, b, m(1))
			member := time.Since(began)
			wg.Wait()
			t.Logf("the member was connected after %v, all clients after %v", member, time.Since(began))
			if n := failed.Load(); n > 0 {
				t.Errorf("%d clients are not connected", n)
			}
			if a.clients.Count() != clients {
				t.Errorf("%d clients are counted", a.clients.Count())
			}
		})
	}
}
