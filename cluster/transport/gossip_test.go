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

	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

func anyMember(c *Config) { c.Member = func(uint64) bool { return true } }

// The types of memberlist's messages that the tests send.
const (
	pingMessage     = 0
	ackMessage      = 2
	pushPullMessage = 6
)

// ack is a packet that memberlist may send.
func ack(s string) []byte { return append([]byte{ackMessage}, s...) }

// checkGossip sends a packet and a stream from one member to another.
func checkGossip(t *testing.T, from, to *node) {
	t.Helper()
	if err := from.Gossip().SendPacket(Target{Addr: to.addr}, ack("packet")); err != nil {
		t.Fatal(err)
	}
	if p := <-to.Gossip().Packets(); string(p.Body) != string(ack("packet")) {
		t.Errorf("received packet %q", p.Body)
	}
	c, err := from.Gossip().DialStream(Target{Addr: to.addr}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	states := append([]byte{pushPullMessage}, hostile.Pack("Nodes", 0, "UserStateLen", 0)...)
	if _, err := c.Write(states); err != nil {
		t.Fatal(err)
	}
	c.Close()
	accepted := <-to.Gossip().Streams()
	defer accepted.Close()
	if got, err := io.ReadAll(accepted); err != nil || !bytes.Equal(got, states) {
		t.Errorf("received stream %q, %v", got, err)
	}
}

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
			if err := a.Gossip().SendPacket(Target{Addr: b.addr}, ack(s)); err != nil {
				t.Fatal(err)
			}
			p := <-b.Gossip().Packets()
			if string(p.Body) != string(ack(s)) || p.From.String() != a.addr || !p.Received.Equal(time.Now()) {
				t.Fatalf("got %q from %v at %v", p.Body, p.From, p.Received)
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
			if err := a.Gossip().SendPacket(Target{Addr: fmt.Sprint("void ", i%10)}, []byte("x")); err != nil {
				errs++
			}
		}
		if got := a.goroutines.count(); got != 1+5 || errs != 500 {
			t.Errorf("%d goroutines, %d errors", got, errs)
		}
		for i := range 2 * b.cfg.Limits.Packets { // twice what is queued for memberlist
			if err := b.Gossip().SendPacket(Target{Addr: "a"}, ack("x")); err != nil {
				t.Fatal(i, err)
			}
			synctest.Wait()
		}
		if got := len(a.Gossip().Packets()); got != a.cfg.Limits.Packets {
			t.Errorf("%d packets are queued", got)
		}
		if err := b.Gossip().SendPacket(Target{Addr: "a"}, make([]byte, 65<<10)); err == nil {
			t.Error("an oversized packet was accepted")
		}
	})
}

// Streams that are not received are closed beyond the backlog.
func TestStreams_BacklogIsBounded(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { anyMember(c); c.Limits.PerMember = 100 })
	b := start(t, identity(2), listenTCP(t), anyMember)
	for range streamBacklog + 10 {
		c, err := b.Gossip().DialStream(Target{Addr: a.addr}, time.Minute)
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
	if _, err := a.Gossip().DialStream(Target{Addr: b.addr}, time.Minute); err == nil {
		t.Error("DialStream after Shutdown succeeded")
	}
	if err := a.Gossip().SendPacket(Target{Addr: b.addr}, []byte("x")); err == nil {
		t.Error("SendPacket after Shutdown succeeded")
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

func TestGossip_AdvertisedAddress(t *testing.T) {
	n := newMemNet()
	for _, c := range []struct{ advertise, want string }{
		{"10.1.2.3:7000", "10.1.2.3:7000"},
		{"[::1]:7000", "[::1]:7000"},
		{"no port", ""},
		{"127.0.0.1:http", ""},
	} {
		id := identity(1)
		id.Advertise = c.advertise
		a := start(t, id, n.listen("a"), nil)
		ip, port, err := a.Gossip().Advertised()
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
	<-a.Gossip().Packets()
	removed.Store(true)
	send()
	if _, err := io.Copy(io.Discard, c); err != nil && !isClosed(err) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	if n := len(a.Gossip().packets); n > 0 {
		t.Errorf("%d packets of a removed member passed", n)
	}
}
