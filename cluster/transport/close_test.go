package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Close during every operation leaks no connection, goroutine or port, and the
// operations return.
func TestClose_ConcurrentWithEveryOperation(t *testing.T) {
	for round := range 8 {
		a := start(t, identity(1), listenTCP(t), nil)
		b := start(t, identity(2), listenTCP(t), nil)
		var all []*wire.Pair
		b.events.snapshot = collect(&all)
		b.events.form = func(*wire.FormRequest) *wire.FormReply { return &wire.FormReply{} }
		b.SetPeer(m(1), a.addr)
		a.SetPeer(m(2), b.addr)
		if round%2 == 0 {
			awaitConnected(t, a, m(2))
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		repeat := func(f func(i int)) {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					f(i)
				}
			})
		}
		formed := make(chan struct{})
		var once sync.Once
		repeat(func(i int) { a.Send(m(2), raftFrame("x")); drainEvents(b.events) })
		repeat(func(i int) { a.SetPeer(uint64(3+i%5), fmt.Sprint("127.0.0.1:", 1+i%3)); a.RemovePeer(uint64(3 + i%7)) })
		repeat(func(int) {
			_, _ = a.Form(ctx, Target{Addr: b.addr}, &wire.FormRequest{})
			once.Do(func() { close(formed) })
		})
		repeat(func(int) {
			if w, err := a.OpenSnapshot(ctx, m(2), testHeader); err == nil {
				_ = w.Add([]byte("k"), []byte("v"))
				_ = w.Commit()
				w.Close()
			}
		})
		repeat(func(int) {
			_ = a.Gossip().SendPacket(Target{Addr: b.addr}, []byte("x"))
			if c, err := a.Gossip().DialStream(Target{Addr: b.addr}, time.Second); err == nil {
				c.Close()
			}
		})
		<-formed
		var closing sync.WaitGroup
		for range 2 {
			closing.Go(func() { _ = a.Close() })
			closing.Go(func() { _ = b.Close() })
		}
		closing.Wait()
		cancel()
		wg.Wait()
		for _, n := range []*node{a, b} {
			checkReleased(t, n)
		}
	}
}

func drainEvents(e *events) {
	for {
		select {
		case <-e.ch:
		default:
			return
		}
	}
}

func checkReleased(t *testing.T, n *node) {
	t.Helper()
	if got := n.goroutines.count(); got != 0 {
		t.Errorf("%d goroutines are running", got)
	}
	n.mu.Lock()
	open := len(n.conns)
	n.mu.Unlock()
	if open != 0 {
		t.Errorf("%d connections are open", open)
	}
	ln, err := net.Listen("tcp", n.addr)
	if err != nil {
		t.Errorf("the port is not released: %v", err)
		return
	}
	ln.Close()
}

func TestClose_BeforeStartAndTwice(t *testing.T) {
	tr, err := New(Config{Identity: identity(1), Key: testKeys[1], Listener: listenTCP(t), Handler: newEvents()})
	if err != nil {
		t.Fatal(err)
	}
	tr.SetPeer(m(2), "127.0.0.1:1")
	for range 2 {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
	tr.Start()
	tr.SetPeer(m(3), "127.0.0.1:1")
	if tr.Send(m(2), raftFrame("x")) {
		t.Error("Send after Close returned true")
	}
	if _, err := tr.Form(context.Background(), Target{Addr: "127.0.0.1:1"}, &wire.FormRequest{}); err == nil {
		t.Error("Form after Close succeeded")
	}
	if got := tr.goroutines.count(); got != 0 {
		t.Errorf("%d goroutines", got)
	}
}

// Close reports PeerLost at the peer, not at the closing member.
func TestClose_PeerLostAtPeerOnly(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	b := start(t, identity(2), listenTCP(t), nil)
	connectAll(t, a, b)
	a.Close()
	b.events.await(t, "lost 1")
	for {
		select {
		case e := <-a.events.ch:
			if e == "lost 2" {
				t.Error(e)
			}
			continue
		default:
		}
		return
	}
}
