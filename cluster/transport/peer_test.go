package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// inMemory starts a transport on a memNet, for use in a bubble. Its waits have no
// jitter, so that tests can predict them.
func inMemory(t *testing.T, n *memNet, id Identity, addr string) *node {
	t.Helper()
	return start(t, id, n.listen(addr), func(c *Config) {
		c.Dial = n.dial
		c.Jitter = func(d time.Duration) time.Duration { return d }
	})
}

// A member that restarts at another address is connected; its earlier process is
// refused.
func TestPeer_RestartAtAnotherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		b := inMemory(t, n, identity(2), "b")
		connectAll(t, a, b)
		a.events.await(t, "connected 2 b")
		b.Close()
		a.events.await(t, "lost 2")
		synctest.Wait() // the outbound connection ends separately
		if a.Send(m(2), raftFrame("x")) {
			t.Error("Send to a lost peer returned true")
		}

		id := identity(2)
		id.Boot, id.Incarnation = 2, wire.ID{2, 2}
		b2 := inMemory(t, n, id, "b2")
		b2.SetPeer(m(1), "a")
		a.events.await(t, "connected 2 b2")
		a.SetPeer(m(2), "b2")
		b2.events.await(t, "connected 1")
		awaitConnected(t, a, m(2))
		if !a.Send(m(2), raftFrame("again")) {
			t.Fatal("Send returned false")
		}
		b2.events.await(t, "frame 1 again")

		old := inMemory(t, n, identity(2), "b")
		old.SetPeer(m(1), "a")
		synctest.Wait()
		checkRefusal(t, old.PeerError(m(1)), ReasonRollback, "member "+text(2)+" has boot counter 1 after 2 was seen")
	})
}

// A copy of a running member is refused; the member keeps its connections.
func TestPeer_CopyOfRunningMemberRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		b := inMemory(t, n, identity(2), "b")
		connectAll(t, a, b)
		id := identity(2)
		id.Incarnation = wire.ID{66}
		copied := inMemory(t, n, id, "copied")
		copied.SetPeer(m(1), "a")
		synctest.Wait()
		checkRefusal(t, copied.PeerError(m(1)), ReasonClone, "on a copy of the data directory")
		if err := errors.Join(a.PeerError(m(2)), b.PeerError(m(1))); err != nil {
			t.Error(err)
		}
		if b.Send(m(1), raftFrame("original")) {
			a.events.await(t, "frame 2 original")
		} else {
			t.Error("the original lost its connection")
		}
	})
}

// A change of address takes effect at once, even if the connection is up.
func TestPeer_AddressChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		b := inMemory(t, n, identity(2), "b")
		connectAll(t, a, b)
		moved := n.listen("moved")
		defer moved.Close()
		a.SetPeer(m(2), "moved")
		c, err := moved.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		body, err := readHello(c)
		if err != nil {
			t.Fatal(err)
		}
		if h, refused := parseHello(body); refused != nil || h.to != m(2) {
			t.Fatalf("%+v, %v", h, refused)
		}
		b.events.await(t, "lost 1")
	})
}

// Waits double up to the limit; Redial ends them.
func TestPeer_Backoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		began := time.Now()
		a.SetPeer(m(2), "unreachable")
		var at []time.Duration
		for seen := 0; len(at) < 9; time.Sleep(10 * time.Millisecond) {
			synctest.Wait()
			if d := n.dials("unreachable"); d > seen {
				seen = d
				at = append(at, time.Since(began).Round(10*time.Millisecond)/time.Millisecond)
			}
		}
		want := []time.Duration{0, 50, 150, 350, 750, 1550, 3150, 5150, 7150}
		if !slices.Equal(at, want) {
			t.Errorf("dialed at %v ms, want %v", at, want)
		}
		before := n.dials("unreachable")
		a.Redial(m(2))
		synctest.Wait()
		if n.dials("unreachable") != before+1 {
			t.Error("Redial did not dial at once")
		}
	})
}

// An inbound connection ends the wait: its member is up.
func TestPeer_InboundConnectionEndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		a.SetPeer(m(2), "b")
		time.Sleep(4 * time.Second) // the next dial is up to 2 s away
		synctest.Wait()
		b := inMemory(t, n, identity(2), "b")
		b.SetPeer(m(1), "a")
		synctest.Wait()
		if err := a.PeerError(m(2)); err != nil {
			t.Error(err)
		}
	})
}

// A network that loses everything without a reset is detected at both ends.
func TestPeer_PartitionWithoutReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		partition := make(chan struct{})
		a := start(t, identity(1), n.listen("a"), func(c *Config) {
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				select {
				case <-partition:
					<-ctx.Done()
					return nil, ctx.Err()
				default:
				}
				conn, err := n.dial(ctx, addr)
				return &lossyConn{Conn: conn, partition: partition}, err
			}
		})
		b := start(t, identity(2), n.listen("b"), func(c *Config) { c.Dial = n.dial })
		a.SetPeer(m(2), "b")
		b.SetPeer(m(1), "nowhere")
		awaitConnected(t, a, m(2))
		b.events.await(t, "connected 1")
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := a.PeerError(m(2)); err != nil {
			t.Fatalf("an idle connection was closed: %v", err)
		}
		close(partition)
		began := time.Now()
		b.events.await(t, "lost 1")
		if d := time.Since(began); d > b.cfg.Timing.KeepAliveTimeout {
			t.Errorf("detected after %v", d)
		}
		time.Sleep(b.cfg.Timing.KeepAliveTimeout)
		if a.PeerError(m(2)) == nil {
			t.Error("the dialer still counts as connected")
		}
	})
}

// lossyConn loses everything in both directions once partition is closed.
type lossyConn struct {
	net.Conn
	partition chan struct{}
}

func (c *lossyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		select {
		case <-c.partition:
			if err == nil {
				continue
			}
		default:
		}
		return n, err
	}
}

func (c *lossyConn) Write(b []byte) (int, error) {
	select {
	case <-c.partition:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// A reconnection of the same process before its old connection is known to be
// dead reports no loss; a new process reports the loss of the old one.
func TestPeer_ConnectionReplaced(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	a.SetPeer(m(2), "127.0.0.1:1")
	first, _ := greetAs(t, a.addr, memberTwo())
	defer first.Close()
	a.events.await(t, "connected 2")
	second, _ := greetAs(t, a.addr, memberTwo())
	defer second.Close()
	if got := <-a.events.ch; got[:9] != "connected" {
		t.Fatalf("got %q, want connected", got)
	}
}

// A second process of a member is refused until the connections of the first have
// ended, and consumes nothing.
func TestPeer_SecondProcessOfMember(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	a.SetPeer(m(2), "127.0.0.1:1")
	first, _ := greetAs(t, a.addr, memberTwo())
	a.events.await(t, "connected 2")
	if got, ok := a.Connected(m(2)); !ok || got != memberTwo().id.Incarnation {
		t.Errorf("Connected returned %v, %v", got, ok)
	}
	o := memberTwo()
	o.id.Boot, o.id.Incarnation = 6, wire.ID{6}
	for _, kind := range []wire.Kind{wire.Kind_PEER, wire.Kind_GOSSIP_STREAM, wire.Kind_FORM} {
		o.kind = kind
		second, refusal := greetAs(t, a.addr, o)
		second.Close()
		checkRefusal(t, parseRefusal(m(1), a.addr, refusal), ReasonClone, "still in contact")
	}
	if last := a.boots.highest[m(2)]; last.counter != 5 {
		t.Errorf("a refused process advanced the boot counter to %d", last.counter)
	}
	first.Close()
	a.events.await(t, "lost 2")
	await(t, func() error {
		if _, ok := a.Connected(m(2)); ok {
			return errors.New("still counted as connected")
		}
		return nil
	})
	o.kind = wire.Kind_PEER
	second, refusal := greetAs(t, a.addr, o)
	defer second.Close()
	if refusal != "" {
		t.Fatal(refusal)
	}
	a.events.await(t, "connected 2")
}

func TestJoined_NoDialBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		id := identity(1)
		id.Cluster = wire.ID{}
		a := inMemory(t, n, id, "a")
		b := inMemory(t, n, identity(2), "b")
		a.SetPeer(m(2), "b")
		b.SetPeer(m(1), "a")
		time.Sleep(10 * time.Second)
		if !errors.Is(a.PeerError(m(2)), ErrNotJoined) || n.dials("b") > 0 {
			t.Errorf("%v after %d dials", a.PeerError(m(2)), n.dials("b"))
		}
		checkRefusal(t, b.PeerError(m(1)), ReasonNoCluster, "no cluster yet")
		a.Joined(testCluster)
		synctest.Wait()
		if err := errors.Join(a.PeerError(m(2)), b.PeerError(m(1))); err != nil {
			t.Error(err)
		}
	})
}

func TestSend_RefusesOversizedFrameAndUnknownPeer(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Limits.Frame = 100 })
	b := start(t, identity(2), listenTCP(t), nil)
	connectAll(t, a, b)
	if a.Send(m(2), raftFrame(string(make([]byte, 101)))) {
		t.Error("Send of an oversized frame returned true")
	}
	if a.Send(m(9), raftFrame("x")) {
		t.Error("Send to an unknown peer returned true")
	}
}

// A member that the group removed while it was down learns of it from a peer.
func TestOnRefused_RemovedReportedByPeer(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Removed = func(member uint64) bool { return member == m(2) } })
	removed := make(chan struct{}, 100)
	b := start(t, identity(2), listenTCP(t), func(c *Config) {
		c.OnRefused = func(member uint64, r *RefusedError) {
			if member == m(1) && r.Reason == ReasonRemoved && !r.Here {
				removed <- struct{}{}
			}
		}
	})
	b.SetPeer(m(1), a.addr)
	<-removed
	<-removed // PeerError has the first refusal before the second dial
	checkRefusal(t, b.PeerError(m(1)), ReasonRemoved, "with an empty directory, as a new member")
}

// A process that the group has not registered uses up no boot counter: the registered one
// is accepted whatever was seen before, and the other is refused from then on.
func TestPeer_RegisteredProcessReplacesOther(t *testing.T) {
	var registered atomic.Pointer[wire.ID]
	var boots []uint64
	a := start(t, identity(1), listenTCP(t), func(c *Config) {
		c.Registered = func(uint64) (id wire.ID) {
			if r := registered.Load(); r != nil {
				id = *r
			}
			return id
		}
		c.BootChanged = func(_, boot uint64) { boots = append(boots, boot) }
	})
	a.SetPeer(m(2), "127.0.0.1:1")
	connect := func(boot uint64, incarnation wire.ID) (refusal string) {
		o := memberTwo()
		o.id.Boot, o.id.Incarnation = boot, incarnation
		c, refusal := greetAs(t, a.addr, o)
		if refusal != "" {
			c.Close()
			return refusal
		}
		a.events.await(t, "connected 2")
		c.Close()
		a.events.await(t, "lost 2")
		await(t, func() error {
			if _, ok := a.Connected(m(2)); ok {
				return errors.New("still counted as connected")
			}
			return nil
		})
		return ""
	}
	copied, original := wire.ID{2, 7}, wire.ID{2, 8}
	if refusal := connect(7, copied); refusal != "" {
		t.Fatal(refusal)
	}
	checkRefusal(t, parseRefusal(m(1), a.addr, connect(7, original)), ReasonClone, "boot counter 7")
	checkRefusal(t, parseRefusal(m(1), a.addr, connect(6, original)), ReasonRollback, "boot counter 6")
	registered.Store(&original)
	if refusal := connect(6, original); refusal != "" {
		t.Fatalf("the registered process: %s", refusal)
	}
	checkRefusal(t, parseRefusal(m(1), a.addr, connect(6, copied)), ReasonClone, "boot counter 6")
	a.Close() // which waits for the connections
	if !slices.Equal(boots, []uint64{7, 6}) {
		t.Errorf("boot counters %v, want 7 and 6", boots)
	}
}
