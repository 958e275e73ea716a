package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// inMemory puts a transport on a memNet, for use in a bubble. Waits are not
// jittered, so that they can be counted.
func inMemory(t *testing.T, n *memNet, id Identity, addr string) *node {
	t.Helper()
	return start(t, id, n.listen(addr), func(c *Config) {
		c.Dial = n.dial
		c.Jitter = func(d time.Duration) time.Duration { return d }
	})
}

// A member that restarts under a new address, with a higher boot, is met again
// and its earlier process is refused.
func TestRestartAtAnotherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		b := inMemory(t, n, identity(2), "b")
		introduceAll(t, a, b)
		a.events.await(t, "connected 2 b")
		b.Close()
		a.events.await(t, "lost 2")
		synctest.Wait() // the outbound connection is another one
		if a.Send(2, raftFrame("x")) {
			t.Error("a frame was taken for a member that is gone")
		}

		id := identity(2)
		id.Boot, id.Incarnation = 2, wire.ID{2, 2}
		b2 := inMemory(t, n, id, "b2")
		b2.SetPeer(1, "a")
		a.events.await(t, "connected 2 b2")
		a.SetPeer(2, "b2")
		b2.events.await(t, "connected 1")
		awaitConnected(t, a, 2)
		if !a.Send(2, raftFrame("again")) {
			t.Fatal("not sent")
		}
		b2.events.await(t, "frame 1 again")

		ghost := inMemory(t, n, identity(2), "b")
		ghost.SetPeer(1, "a")
		synctest.Wait()
		checkRefusal(t, ghost.PeerError(1), ReasonRollback, "member 2 started 1 times")
	})
}

// A clone of a running member is refused, and the member is left in peace.
func TestCloneOfARunningMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		b := inMemory(t, n, identity(2), "b")
		introduceAll(t, a, b)
		id := identity(2)
		id.Incarnation = wire.ID{66}
		clone := inMemory(t, n, id, "clone")
		clone.SetPeer(1, "a")
		synctest.Wait()
		checkRefusal(t, clone.PeerError(1), ReasonClone, "copy of the other's directory")
		if err := errors.Join(a.PeerError(2), b.PeerError(1)); err != nil {
			t.Error(err)
		}
		if b.Send(1, raftFrame("still here")) {
			a.events.await(t, "frame 2 still here")
		} else {
			t.Error("the original was cut off")
		}
	})
}

// A change of address is followed at once, also away from a live connection.
func TestChangeOfAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		b := inMemory(t, n, identity(2), "b")
		introduceAll(t, a, b)
		moved := n.listen("moved")
		defer moved.Close()
		a.SetPeer(2, "moved")
		c, err := moved.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if h, err := readHello(c); err != nil || h.to != 2 {
			t.Fatalf("%+v, %v", h, err)
		}
		b.events.await(t, "lost 1")
	})
}

// Waits double up to the limit; a hint ends them.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		began := time.Now()
		a.SetPeer(2, "nobody")
		var at []time.Duration
		for seen := 0; len(at) < 9; time.Sleep(10 * time.Millisecond) {
			synctest.Wait()
			if d := n.dials("nobody"); d > seen {
				seen = d
				at = append(at, time.Since(began).Round(10*time.Millisecond)/time.Millisecond)
			}
		}
		want := []time.Duration{0, 50, 150, 350, 750, 1550, 3150, 5150, 7150}
		if !slices.Equal(at, want) {
			t.Errorf("dialled at %v ms, want %v", at, want)
		}
		before := n.dials("nobody")
		a.Redial(2)
		synctest.Wait()
		if n.dials("nobody") != before+1 {
			t.Error("the hint was not followed at once")
		}
	})
}

// A member that dials us is there: it is dialled back without further waiting.
func TestInboundConnectionEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		a.SetPeer(2, "b")
		time.Sleep(4 * time.Second) // the next dial is up to 2 s away
		synctest.Wait()
		b := inMemory(t, n, identity(2), "b")
		b.SetPeer(1, "a")
		synctest.Wait()
		if err := a.PeerError(2); err != nil {
			t.Error(err)
		}
	})
}

func answer(t *testing.T, c net.Conn, id Identity) {
	t.Helper()
	if _, err := readHello(c); err != nil {
		t.Fatal(err)
	}
	if err := writeHello(c, id, wire.Kind_PEER, 0, ""); err != nil {
		t.Fatal(err)
	}
}

// The network swallows everything, without a reset: both sides notice.
func TestSilenceBreaksTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		hole := make(chan struct{})
		a := start(t, identity(1), n.listen("a"), func(c *Config) {
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				select {
				case <-hole:
					<-ctx.Done()
					return nil, ctx.Err()
				default:
				}
				conn, err := n.dial(ctx, addr)
				return &holeConn{Conn: conn, hole: hole}, err
			}
		})
		b := start(t, identity(2), n.listen("b"), func(c *Config) { c.Dial = n.dial })
		a.SetPeer(2, "b")
		b.SetPeer(1, "nowhere")
		awaitConnected(t, a, 2)
		b.events.await(t, "connected 1")
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := a.PeerError(2); err != nil {
			t.Fatalf("an idle connection did not last: %v", err)
		}
		close(hole)
		began := time.Now()
		b.events.await(t, "lost 1")
		if d := time.Since(began); d > b.cfg.Timing.Silence {
			t.Errorf("noticed after %v", d)
		}
		time.Sleep(b.cfg.Timing.Silence)
		if a.PeerError(2) == nil {
			t.Error("the dialer did not notice")
		}
	})
}

// holeConn loses everything in both directions once hole is closed.
type holeConn struct {
	net.Conn
	hole chan struct{}
}

func (c *holeConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		select {
		case <-c.hole:
			if err == nil {
				continue
			}
		default:
		}
		return n, err
	}
}

func (c *holeConn) Write(b []byte) (int, error) {
	select {
	case <-c.hole:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// The same process connects again before its old connection is known dead: no
// loss is reported, frames go on, and of a new process the old one's loss is.
func TestReplacedConnection(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	a.SetPeer(2, "127.0.0.1:1")
	first, _ := shake(t, a.addr, memberTwo())
	defer first.Close()
	a.events.await(t, "connected 2")
	second, _ := shake(t, a.addr, memberTwo())
	defer second.Close()
	if got := <-a.events.ch; got[:9] != "connected" {
		t.Fatalf("got %q, want connected", got)
	}
	o := memberTwo()
	o.id.Boot, o.id.Incarnation = 6, wire.ID{6}
	third, h := shake(t, a.addr, o)
	defer third.Close()
	if h.refusal != "" {
		t.Fatal(h.refusal)
	}
	for _, want := range []string{"lost 2", "connected 2"} {
		if got := <-a.events.ch; got[:len(want)] != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestRemovePeer(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	b := start(t, identity(2), listenTCP(t), nil)
	introduceAll(t, a, b)
	a.RemovePeer(2)
	a.events.await(t, "lost 2")
	b.events.await(t, "lost 1")
	if err := a.PeerError(2); !errors.Is(err, ErrUnknownPeer) {
		t.Error(err)
	}
	await(t, func() error {
		b.Redial(1)
		if refused := new(RefusedError); !errors.As(b.PeerError(1), &refused) || refused.Reason != ReasonStranger {
			return fmt.Errorf("not refused as a stranger: %v", b.PeerError(1))
		}
		return nil
	})
}

// A member may be removed when its hello has been judged and its connection is
// not known yet. It does not stay connected.
func TestRemovePeerWhileItConnects(t *testing.T) {
	var a *node
	var removed atomic.Bool
	a = start(t, identity(1), listenTCP(t), func(c *Config) {
		c.Member = func(uint64) bool {
			if removed.Swap(true) {
				return false
			}
			a.RemovePeer(2)
			return true
		}
	})
	b := start(t, identity(2), listenTCP(t), nil)
	b.SetPeer(1, a.addr)
	await(t, func() error {
		if refused := new(RefusedError); !errors.As(b.PeerError(1), &refused) || refused.Reason != ReasonStranger {
			return fmt.Errorf("not refused as a stranger: %v", b.PeerError(1))
		}
		return nil
	})
}

func TestNothingIsDialledBeforeJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		id := identity(1)
		id.Cluster = wire.ID{}
		a := inMemory(t, n, id, "a")
		b := inMemory(t, n, identity(2), "b")
		a.SetPeer(2, "b")
		b.SetPeer(1, "a")
		time.Sleep(10 * time.Second)
		if !errors.Is(a.PeerError(2), ErrNotJoined) || n.dials("b") > 0 {
			t.Errorf("%v after %d dials", a.PeerError(2), n.dials("b"))
		}
		checkRefusal(t, b.PeerError(1), ReasonNoCluster, "no cluster yet")
		a.Joined(testCluster)
		synctest.Wait()
		if err := errors.Join(a.PeerError(2), b.PeerError(1)); err != nil {
			t.Error(err)
		}
	})
}

func TestOversizedFrameIsNotSent(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Limits.Frame = 100 })
	b := start(t, identity(2), listenTCP(t), nil)
	introduceAll(t, a, b)
	if a.Send(2, raftFrame(string(make([]byte, 101)))) {
		t.Error("it was taken")
	}
	if a.Send(9, raftFrame("x")) {
		t.Error("a frame for nobody was taken")
	}
}
