package gossip

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/memnet"
	"github.com/conclave-go/conclave/internal/wire"
)

// pair starts the gossip of two processes that know each other, in a bubble.
func pair(t *testing.T) (network *memnet.Network, both [2]*Gossip) {
	t.Helper()
	network = memnet.New(2)
	events := Events{Alive: func(string, *wire.GossipMeta) {}, Dead: func(string, *wire.GossipMeta) {}}
	for i := range both {
		addr := fmt.Sprintf("10.0.0.%d:7000", i+1)
		n := start(t, i+1, network.Listen(i, addr), func(c *transport.Config) {
			c.Insecure, c.Dial, c.Identity.Advertise = true, network.Dialer(i), addr
		})
		meta := &wire.GossipMeta{Version: wire.GossipVersion, Member: memberID(i + 1), Boot: 1, Advertise: addr}
		var err error
		if both[i], err = New(n.Gossip(), meta, slog.New(slog.DiscardHandler), 1, events); err != nil {
			t.Fatal(err)
		}
	}
	if err := both[1].Join(transport.Target{Addr: "10.0.0.1:7000"}); err != nil {
		t.Fatal(err)
	}
	return network, both
}

// closing returns how long Close takes.
func closing(g *Gossip) time.Duration {
	began := time.Now()
	g.Close()
	return time.Since(began)
}

// Close does not wait where every probe has been answered, at whatever moment between two probes, nor for what the
// process itself has announced. Where one has not, the bubble ends only if Close has waited for it.
func TestClose_WaitsForProbes(t *testing.T) {
	const moments = 12
	for i := range moments {
		at := 4*probeInterval + time.Duration(i)*probeInterval/moments + time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			_, both := pair(t)
			time.Sleep(at)
			both[0].AnnounceShutdown()
			synctest.Wait() // a probe may begin at this moment
			for n, g := range both {
				if d := closing(g); d != 0 {
					t.Errorf("process %d, closed after %v: waited %v", n, at, d)
				}
			}
		})
		synctest.Test(t, func(t *testing.T) {
			network, both := pair(t)
			time.Sleep(2 * probeInterval)
			network.Isolate(1)
			time.Sleep(at - 2*probeInterval)
			for n, g := range both {
				if d := closing(g); d > probeInterval+probeMargin {
					t.Errorf("process %d, closed after %v: waited %v", n, at, d)
				}
			}
		})
	}
}

// A process that is alone has nothing to wait for.
func TestClose_Alone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, both := pair(t)
		time.Sleep(probeInterval)
		both[1].AnnounceShutdown()
		both[1].Close()
		time.Sleep(probeInterval)
		both[0].AnnounceShutdown()
		synctest.Wait() // a probe may have begun at this moment
		if d := closing(both[0]); d != 0 {
			t.Errorf("waited %v", d)
		}
	})
}
