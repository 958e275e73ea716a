package transport

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conclave-go/conclave/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// events is a Handler that sends a line per call to a channel.
type events struct {
	ch       chan string
	form     func(*wire.FormRequest) *wire.FormReply
	snapshot func(uint64, *SnapshotReader) error
	stall    chan struct{} // Frame blocks until it is closed
}

func newEvents() *events { return &events{ch: make(chan string, 10_000)} }

func (e *events) Frame(from uint64, f *wire.Frame) {
	e.ch <- fmt.Sprintf("frame %d %s", number(from), f.GetRaft())
	if e.stall != nil {
		<-e.stall
	}
}

func (e *events) PeerConnected(member uint64, advertise, name string) {
	e.ch <- fmt.Sprintf("connected %d %s %s", number(member), advertise, name)
}

func (e *events) PeerLost(member uint64) { e.ch <- fmt.Sprintf("lost %d", number(member)) }

func (e *events) Form(r *wire.FormRequest) *wire.FormReply { return e.form(r) }

func (e *events) Snapshot(from uint64, r *SnapshotReader) error { return e.snapshot(from, r) }

// await reads events until one starts with want, and returns it.
func (e *events) await(t *testing.T, want string) string {
	t.Helper()
	timeout := time.After(5 * time.Minute)
	for {
		select {
		case got := <-e.ch:
			if strings.HasPrefix(got, want) {
				return got
			}
		case <-timeout:
			t.Fatalf("timeout: no event %q", want)
		}
	}
}

var testCluster = wire.ID{0xc1}

// node is a transport under test with its Handler.
type node struct {
	*Transport
	events *events
	addr   string
}

// start starts a transport; change may be nil.
func start(t *testing.T, id Identity, ln net.Listener, change func(*Config)) *node {
	t.Helper()
	e := newEvents()
	cfg := Config{Identity: id, Key: testKeys[number(id.Member)], Listener: ln, Handler: e}
	if change != nil {
		change(&cfg)
	}
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tr.Start()
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return &node{Transport: tr, events: e, addr: ln.Addr().String()}
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// serve starts a listener that serves one connection after another, and returns its address.
func serve(t *testing.T, connection func(net.Conn)) string {
	t.Helper()
	ln := listenTCP(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			connection(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

func raftFrame(s string) *wire.Frame { return &wire.Frame{Body: &wire.Frame_Raft{Raft: []byte(s)}} }

// connectAll makes all nodes peers of each other and waits until they are
// connected.
func connectAll(t *testing.T, nodes ...*node) {
	t.Helper()
	for _, a := range nodes {
		for _, b := range nodes {
			a.SetPeer(b.cfg.Identity.Member, b.addr)
		}
	}
	for _, a := range nodes {
		for _, b := range nodes {
			if a != b {
				awaitConnected(t, a, b.cfg.Identity.Member)
			}
		}
	}
}

// awaitConnected waits until frames for the member are accepted. It polls because
// a handshake is an event at the listener's end only.
func awaitConnected(t *testing.T, n *node, member uint64) {
	t.Helper()
	await(t, func() error { return n.PeerError(member) })
}

// await polls until check returns nil.
func await(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

func TestSend_FramesArriveInOrder(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	b := start(t, identity(2), listenTCP(t), nil)
	connectAll(t, a, b)
	if got, want := b.events.await(t, "connected"), fmt.Sprintf("connected 1 %s m1", a.addr); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range 1000 {
		if !a.Send(m(2), raftFrame(fmt.Sprint(i))) {
			t.Fatalf("Send of frame %d returned false", i)
		}
	}
	for i := range 1000 {
		if got, want := <-b.events.ch, fmt.Sprintf("frame 1 %d", i); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}
