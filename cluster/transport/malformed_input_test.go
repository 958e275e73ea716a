package transport

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// malformedHellos are bytes that may arrive on the port instead of a hello.
func malformedHellos() map[string][]byte {
	noise := make([]byte, 64<<10)
	_, _ = rand.Read(noise)
	huge := binary.BigEndian.AppendUint32([]byte(magic), 1<<30)
	huge = append(huge, make([]byte, 64<<10)...)
	badSum := appendFrame([]byte(magic), []byte("hello"))
	badSum[len(badSum)-1] ^= 1
	return map[string][]byte{
		"HTTP":             []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"TLS client hello": append([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252}, noise[:507]...),
		"noise":            noise,
		"oversized hello":  huge,
		"damaged hello":    badSum,
		"hello of noise":   appendFrame([]byte(magic), noise[:1000]),
	}
}

// The connection is closed at once, not at the deadline.
func TestAccept_MalformedHelloClosesConnection(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Timing.Hello = time.Hour })
	for name, in := range malformedHellos() {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", a.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = c.Write(in) // the connection may be closed already
			if _, err := io.Copy(io.Discard, c); errors.Is(err, io.EOF) {
				t.Error(err)
			}
		})
	}
}

func TestAccept_MalformedFrameClosesConnection(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	a.SetPeer(m(2), "127.0.0.1:1")
	badSum := appendFrame(nil, []byte("x"))
	badSum[5] ^= 1
	for name, in := range map[string][]byte{
		"oversized":    {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"damaged":      badSum,
		"not protobuf": appendFrame(nil, []byte{0xff, 0xff, 0xff}),
		"unknown kind": appendFrame(nil, []byte{0x7a, 0x01, 0x00}), // field 15
	} {
		t.Run(name, func(t *testing.T) {
			c, refusal := greetAs(t, a.addr, memberTwo())
			defer c.Close()
			if refusal != "" {
				t.Fatal(refusal)
			}
			a.events.await(t, "connected 2")
			if _, err := c.Write(in); err != nil {
				t.Fatal(err)
			}
			a.events.await(t, "lost 2")
		})
	}
}

// Connections without a timely hello end at the deadline. Meanwhile those beyond
// the limit are closed at once, and connected members are unaffected.
func TestAccept_HalfOpenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := start(t, identity(1), n.listen("a"), func(c *Config) { c.Dial = n.dial; c.Limits.Handshakes = 10 })
		b := inMemory(t, n, identity(2), "b")
		connectAll(t, a, b)
		before := a.goroutines.count()
		began := time.Now()
		ended := make(chan time.Duration)
		for i := range 30 {
			c, err := n.dial(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go func() {
				for k := range 100 { // byte by byte
					time.Sleep(200 * time.Millisecond)
					if _, err := c.Write([]byte(magic)[k%len(magic) : k%len(magic)+1]); err != nil || i%2 == 0 && k == 3 {
						break
					}
				}
				_, _ = io.Copy(io.Discard, c)
				ended <- time.Since(began)
			}()
		}
		synctest.Wait()
		if got := a.goroutines.count() - before; got != 10 {
			t.Errorf("%d handshakes at once, want 10", got)
		}
		if !b.Send(m(1), raftFrame("through")) {
			t.Error("Send returned false")
		}
		a.events.await(t, "frame 2 through")
		for range 30 {
			if d := <-ended; d > a.cfg.Timing.Hello+time.Second {
				t.Errorf("a half-open connection lasted %v", d)
			}
		}
		synctest.Wait()
		if got := a.goroutines.count() - before; got != 0 {
			t.Errorf("%d goroutines are running", got)
		}
	})
}

// A thousand malformed connections leak neither memory nor goroutines.
func TestAccept_MalformedInputLeaksNothing(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	inputs := malformedHellos()
	round := func(n int) {
		for range n {
			for _, in := range inputs {
				c, err := net.Dial("tcp", a.addr)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = c.Write(in)
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}
			o := memberTwo()
			o.kind = wire.Kind_FORM // refused for its group, with another name each time
			o.id.Group = rand.Text()
			c, _ := greetAs(t, a.addr, o)
			c.Close()
		}
	}
	idle := func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.conns) > 0 || a.goroutines.count() != 1 {
			return errors.New("connections are open")
		}
		return nil
	}
	round(5)
	await(t, idle)
	before := heap()
	round(150)
	await(t, idle)
	if after := heap(); after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Connections of one kind from one member are bounded; closing one releases its
// place.
func TestAccept_ConnectionsPerMember(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { anyMember(c); c.Limits.PerMember = 3; c.Limits.Connections = 5 })
	open := func(member uint64) (net.Conn, string) {
		o := opening{id: identity(member), kind: wire.Kind_GOSSIP_PACKETS}
		c, refusal := greetAs(t, a.addr, o)
		t.Cleanup(func() { c.Close() })
		return c, refusal
	}
	var first net.Conn
	for range 3 {
		c, refusal := open(2)
		if refusal != "" {
			t.Fatal(refusal)
		}
		first = c
	}
	_, refusal := open(2)
	checkRefusal(t, parseRefusal(m(1), a.addr, refusal), ReasonBusy, "GOSSIP_PACKETS")
	for range 2 {
		if _, refusal := open(3); refusal != "" {
			t.Fatal(refusal)
		}
	}
	_, refusal = open(4) // the limit on the total
	checkRefusal(t, parseRefusal(m(1), a.addr, refusal), ReasonBusy, "member "+text(4))
	first.Close()
	await(t, func() error {
		if _, refusal := open(2); refusal != "" {
			return errors.New(refusal)
		}
		return nil
	})
}
