package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/internal/wire"
)

// gossiper is a member of a memberlist cluster over transports.
type gossiper struct {
	*node
	list   *memberlist.Memberlist
	joined chan *memberlist.Node
	dead   chan *memberlist.Node
}

func (g *gossiper) NotifyJoin(n *memberlist.Node)   { g.joined <- n }
func (g *gossiper) NotifyLeave(n *memberlist.Node)  { g.dead <- n }
func (g *gossiper) NotifyUpdate(n *memberlist.Node) {}

// Of the delegate, only the metadata is used.
func (g *gossiper) NodeMeta(int) []byte               { return []byte("meta of " + processOf(g.node)) }
func (*gossiper) NotifyMsg([]byte)                    {}
func (*gossiper) GetBroadcasts(int, int) [][]byte     { return nil }
func (*gossiper) LocalState(bool) []byte              { return nil }
func (*gossiper) MergeRemoteState(buf []byte, _ bool) {}

// processOf is the name of a node's process.
func processOf(n *node) string { return wire.ProcessName(n.cfg.Identity.Member, n.cfg.Identity.Boot) }

func startGossip(t *testing.T, n *node) *gossiper {
	t.Helper()
	g := &gossiper{node: n, joined: make(chan *memberlist.Node, 100), dead: make(chan *memberlist.Node, 100)}
	cfg := memberlist.DefaultLocalConfig()
	cfg.Name = processOf(n)
	cfg.Transport = n.Gossip()
	cfg.Events, cfg.Delegate = g, g
	cfg.LogOutput = io.Discard
	cfg.EnableCompression = false
	cfg.UDPBufferSize = 32 << 10
	cfg.ProbeInterval, cfg.ProbeTimeout = 200*time.Millisecond, 100*time.Millisecond
	cfg.GossipInterval = 20 * time.Millisecond
	cfg.SuspicionMult = 2
	cfg.AwarenessMaxMultiplier = 1 // no probe lasts longer under load
	list, err := memberlist.Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.list = list
	t.Cleanup(func() {
		_ = list.Shutdown()
		<-time.After(cfg.ProbeInterval) // Shutdown does not wait for the last probe, which ends by then
	})
	return g
}

// checkFailureDetection joins three members, kills one and waits until the others
// declare it dead.
func checkFailureDetection(t *testing.T, nodes [3]*node) {
	t.Helper()
	var g [3]*gossiper
	for i, n := range nodes {
		g[i] = startGossip(t, n)
		if i > 0 {
			if _, err := g[i].list.Join([]string{g[0].addr}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range g {
		seen := make(map[string]bool)
		for len(seen) < 3 { // itself included
			n := <-x.joined
			if want := "meta of " + n.Name; string(n.Meta) != want {
				t.Errorf("%q has metadata %q, want %q", n.Name, n.Meta, want)
			}
			seen[n.Name] = true
		}
	}
	nodes[2].Close() // without Leave
	for _, x := range g[:2] {
		// Under load another may be declared dead, and refute it.
		for n := <-x.dead; n.Name != processOf(nodes[2]); n = <-x.dead {
			t.Logf("%s declared %s dead", x.list.LocalNode().Name, n.Name)
		}
	}
}

func TestGossip_MemberlistOverTCP(t *testing.T) {
	checkFailureDetection(t, [3]*node{
		start(t, identity(1), listenTCP(t), anyMember), start(t, identity(2), listenTCP(t), anyMember), start(t, identity(3), listenTCP(t), anyMember),
	})
}

// The addresses in the bubble are IP addresses because memberlist parses them.
func TestGossip_MemberlistInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// memberlist's Shutdown does not wait for its probes, which end with
		// their timers. Those run only while the test does.
		t.Cleanup(func() { time.Sleep(time.Minute) })
		n := newMemNet()
		var nodes [3]*node
		for i := range nodes {
			nodes[i] = inMemory(t, n, identity(uint64(i+1)), fmt.Sprintf("10.0.0.%d:7000", i+1))
			for other := range nodes {
				nodes[i].SetPeer(m(uint64(other+1)), fmt.Sprintf("10.0.0.%d:7000", other+1))
			}
		}
		checkFailureDetection(t, nodes)
	})
}

// A member of another group is refused with both groups named.
func TestGossip_OtherGroupRefused(t *testing.T) {
	a := startGossip(t, start(t, identity(1), listenTCP(t), nil))
	id := identity(2)
	id.Group = "other"
	b := startGossip(t, start(t, id, listenTCP(t), nil))
	_, err := b.list.Join([]string{a.addr})
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte(`configured for group "other"`)) {
		t.Errorf("joined another group: %v", err)
	}
}

func anyMember(c *Config) { c.Member = func(uint64) bool { return true } }

// The types of memberlist's messages that the tests send.
const (
	pingMessage     = 0
	ackMessage      = 2
	pushPullMessage = 6
)

// ack is a packet that memberlist may send.
func ack(s string) []byte { return append([]byte{ackMessage}, s...) }

// Packets to one address share a connection, which closes after the idle timeout
// and is dialed again on demand.
func TestPackets_ConnectionClosedWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "10.0.0.1:7000")
		b := inMemory(t, n, identity(2), "10.0.0.2:7000")
		a.cfg.Member = func(uint64) bool { return true }
		b.cfg.Member = a.cfg.Member
		send := func(s string) {
			t.Helper()
			if _, err := a.Gossip().WriteTo(ack(s), b.addr); err != nil {
				t.Fatal(err)
			}
			p := <-b.Gossip().PacketCh()
			if string(p.Buf) != string(ack(s)) || p.From.String() != a.addr || !p.Timestamp.Equal(time.Now()) {
				t.Fatalf("got %q from %v at %v", p.Buf, p.From, p.Timestamp)
			}
		}
		for i := range 100 {
			send(fmt.Sprint(i))
		}
		time.Sleep(a.cfg.Timing.Idle - 2*time.Second)
		send("not idle yet")
		if got := n.dials(b.addr); got != 1 {
			t.Errorf("%d dials", got)
		}
		time.Sleep(a.cfg.Timing.Idle + 2*time.Second)
		if got := b.goroutines.count(); got != 1 {
			t.Errorf("%d goroutines are running", got)
		}
		send("again")
		if got := n.dials(b.addr); got != 2 {
			t.Errorf("%d dials", got)
		}
	})
}

// Undeliverable packets, to one address or to many, are lost and cost bounded
// memory and goroutines.
func TestPackets_UndeliverableAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := start(t, identity(1), n.listen("a"), func(c *Config) {
			c.Dial = func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
			c.Limits.Addresses = 5
			anyMember(c)
		})
		b := start(t, identity(2), n.listen("b"), func(c *Config) { anyMember(c); c.Dial = n.dial })
		errs := 0
		for i := range 1000 {
			if _, err := a.Gossip().WriteTo([]byte("x"), fmt.Sprint("void ", i%10)); err != nil {
				errs++
			}
		}
		if got := a.goroutines.count(); got != 1+5 || errs != 500 {
			t.Errorf("%d goroutines, %d errors", got, errs)
		}
		for i := range 2 * b.cfg.Limits.Packets { // twice what is queued for memberlist
			if _, err := b.Gossip().WriteTo(ack("x"), "a"); err != nil {
				t.Fatal(i, err)
			}
			synctest.Wait()
		}
		if got := len(a.Gossip().PacketCh()); got != a.cfg.Limits.Packets {
			t.Errorf("%d packets are queued", got)
		}
		if _, err := b.Gossip().WriteTo(make([]byte, 65<<10), "a"); err == nil {
			t.Error("an oversized packet was accepted")
		}
	})
}

// Streams that memberlist does not read are closed beyond the backlog.
func TestStreams_BacklogIsBounded(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { anyMember(c); c.Limits.PerMember = 100 })
	b := start(t, identity(2), listenTCP(t), anyMember)
	for range streamBacklog + 10 {
		c, err := b.Gossip().DialTimeout(a.addr, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	await(t, func() error { // the listener learns of an accepted stream after its dialer
		if n := len(a.Gossip().streams); n != streamBacklog {
			return fmt.Errorf("%d streams are queued, want %d", n, streamBacklog)
		}
		return nil
	})
	if err := a.Gossip().Shutdown(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Gossip().DialTimeout(b.addr, time.Minute); err == nil {
		t.Error("DialTimeout after Shutdown succeeded")
	}
	if _, err := a.Gossip().WriteTo([]byte("x"), b.addr); err == nil {
		t.Error("WriteTo after Shutdown succeeded")
	}
	connectAll(t, a, b) // Shutdown leaves the port open
}

func TestReplyAddr(t *testing.T) {
	remote := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9), Port: 1234}
	for advertise, want := range map[string]string{
		"10.0.0.1:7000":  "10.0.0.1:7000",
		"[::1]:7000":     "[::1]:7000",
		"example.com:70": "127.0.0.9:70",
		"example.com:xy": "127.0.0.9:1234",
		"no port":        "127.0.0.9:1234",
		"":               "127.0.0.9:1234",
	} {
		if got := replyAddr(advertise, remote).String(); got != want {
			t.Errorf("%q: got %s, want %s", advertise, got, want)
		}
	}
}

func TestFinalAdvertiseAddr(t *testing.T) {
	n := newMemNet()
	for _, c := range []struct {
		advertise, ip string
		port          int
		want          string
	}{
		{"10.1.2.3:7000", "", 0, "10.1.2.3:7000"},
		{"10.1.2.3:7000", "10.9.9.9", 99, "10.9.9.9:99"},
		{"[::1]:7000", "", 0, "[::1]:7000"},
		{"no port", "", 0, ""},
		{"127.0.0.1:http", "", 0, ""},
	} {
		id := identity(1)
		id.Advertise = c.advertise
		a := start(t, id, n.listen("a"), nil)
		ip, port, err := a.Gossip().FinalAdvertiseAddr(c.ip, c.port)
		got := ""
		if err == nil {
			got = (&net.TCPAddr{IP: ip, Port: port}).String()
		}
		if got != c.want {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
}

// The packets of a member that has been removed since its hello are dropped.
func TestGossip_PacketsOfRemovedMember(t *testing.T) {
	var removed atomic.Bool
	a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Member = func(uint64) bool { return !removed.Load() } })
	c, refusal := greetAs(t, a.addr, opening{id: identity(2), kind: wire.Kind_GOSSIP_PACKETS})
	defer c.Close()
	if refusal != "" {
		t.Fatal(refusal)
	}
	send := func() {
		if _, err := c.Write(appendFrame(nil, []byte{pingMessage})); err != nil {
			t.Fatal(err)
		}
	}
	send()
	<-a.Gossip().PacketCh()
	removed.Store(true)
	send()
	if _, err := io.Copy(io.Discard, c); err != nil && !isClosed(err) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	if n := len(a.Gossip().packets); n > 0 {
		t.Errorf("%d packets of a removed member passed", n)
	}
}
