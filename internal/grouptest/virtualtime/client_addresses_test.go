package virtualtime

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// The addresses that a client was given, or has learned, lead nowhere, to silence or to one member.

// All other members come back at other addresses while a client is connected to one, which then
// dies: the client finds them, whether it has renewed meanwhile or not. No member dies as the
// leader: an election may take longer than the smallest TTL.
func TestClient_MembersMoved(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
				c := grouptest.Dial(g.T, &conclave.ClientConfig{SessionTTL: ttl, Dial: g.Net.Dialer(outsider)}, g.Nodes[0])
				lock := c.FencedLock("x")
				fence := grouptest.MustLock(g.T, lock)
				for i := 1; i < outsider; i++ {
					depose(g, i)
					g.Kill(i)
					g.Configs[i].Bind = fmt.Sprintf("127.3.0.%d:7000", i)
					g.Start(i)
					pass(3 * time.Second)
				}
				depose(g, 0)
				g.Kill(0)
				pass(2 * time.Second)
				wantHeld(g, c, lock, fence)
			}, grouptest.Newcomers(1))
		})
	}
}

// depose has another of the members 0 to 2 lead if member i does.
func depose(g *grouptest.Group, i int) {
	g.T.Helper()
	for next := i; g.Leader() == i; {
		next = (next + 1) % outsider
		if next == i {
			continue
		}
		grouptest.Must(g.T, g.Nodes[i].TransferLeadership(grouptest.Within(g.T, time.Minute), g.ID(next)))
		pass(time.Second)
	}
}

// Two of five members do not answer, one of them that of a client with a short TTL, and most of
// the addresses that the client was given lead nowhere: it finds one of the three in time.
func TestClient_SilentAddresses(t *testing.T) {
	skipIfShort(t)
	const members, away, nowhere = 5, 5, 6
	grouptest.InBubble(t, members+2, func(g *grouptest.Group) {
		cfg := &conclave.ClientConfig{SessionTTL: 5 * time.Second, Dial: g.Net.Dialer(away)}
		for i := range 10 {
			addr := fmt.Sprintf("127.4.0.%d:7000", i)
			defer g.Net.Listen(nowhere, addr).Close()
			cfg.Addresses = append(cfg.Addresses, addr)
		}
		g.Net.Partition(away, nowhere)
		began := time.Now()
		c := grouptest.Dial(g.T, cfg, g.Nodes[:members]...)
		if d := time.Since(began); d > 5*time.Second {
			g.T.Errorf("Dial takes %v", d)
		}
		lock := c.FencedLock("x")
		fence := grouptest.MustLock(g.T, lock)
		for round := range members {
			s, err := c.Status(grouptest.Within(g.T, time.Minute))
			grouptest.Must(g.T, err)
			at := 0
			for i := range members {
				if g.ID(i) == s.ID {
					at = i
				}
			}
			other := (at + 1 + round%(members-1)) % members
			g.Net.Isolate(at)
			g.Net.Isolate(other)
			pass(15 * time.Second)
			wantHeld(g, c, lock, fence)
			g.Net.Rejoin(at)
			g.Net.Rejoin(other)
			g.Net.Partition(away, nowhere)
			pass(10 * time.Second)
		}
	}, grouptest.Newcomers(2))
}

// Several addresses lead to one member, which is slow to answer: the client is attached there once,
// and the connections of the other attempts are closed.
func TestClient_OneMemberAtManyAddresses(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		pass(10 * time.Second) // to the feature level of clients
		real := g.Nodes[0].Addr()
		var open atomic.Int64
		cfg := &conclave.ClientConfig{SessionTTL: 10 * time.Second, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := g.Net.Dial(ctx, outsider, real)
			if err == nil {
				open.Add(1)
				c = &closingConn{Conn: c, closed: sync.OnceFunc(func() { open.Add(-1) })}
			}
			return c, err
		}}
		for i := range 6 {
			cfg.Addresses = append(cfg.Addresses, fmt.Sprintf("127.5.0.%d:7000", i))
		}
		g.Net.Delay(outsider, 0, 200*time.Millisecond)
		g.Net.Delay(0, outsider, 200*time.Millisecond)
		c := grouptest.Dial(g.T, cfg, g.Nodes[0])
		lock := c.FencedLock("x")
		fence := grouptest.MustLock(g.T, lock)
		for range 10 {
			pass(3 * time.Second)
			if n := open.Load(); n != 1 {
				g.T.Errorf("%d connections are open", n)
			}
		}
		wantHeld(g, c, lock, fence)
	}, grouptest.Newcomers(1))
}

type closingConn struct {
	net.Conn
	closed func()
}

func (c *closingConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
