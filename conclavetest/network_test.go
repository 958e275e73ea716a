package conclavetest

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
)

// wire is a connection from member 0 to member 1.
type wire struct {
	net       *network
	dial      dialer
	listener  net.Listener
	near, far net.Conn
}

func newWire(t *testing.T) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{net: newNetwork(2), listener: l}
	w.dial = w.net.dialer(0, nil)
	w.net.owns(1, l.Addr().String())
	t.Cleanup(func() {
		_ = l.Close() // nothing is lost
		w.net.close()
	})
	w.near, w.far = w.connect(t)
	return w
}

func (w *wire) connect(t *testing.T) (near, far net.Conn) {
	t.Helper()
	near, err := w.dial(t.Context(), w.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = w.listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() }) // tests close the ends that matter
	return near, far
}

func (w *wire) partition() { w.net.arrange([]int{1, 0}) }
func (w *wire) heal()      { w.net.arrange([]int{0, 0}) }

func send(t *testing.T, to net.Conn, what string) {
	t.Helper()
	if _, err := to.Write([]byte(what)); err != nil {
		t.Fatal(err)
	}
}

func wantReceived(t *testing.T, from net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("received %q, %v; want %q", got, err, want)
	}
}

// wantEnd checks that a connection breaks without further bytes.
func wantEnd(t *testing.T, from net.Conn) {
	t.Helper()
	if n, err := from.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("received %d bytes, %v", n, err)
	}
}

// Without a partition a relay passes bytes, addresses and the end of a connection.
func TestRelay_Carries(t *testing.T) {
	w := newWire(t)
	send(t, w.near, "there")
	wantReceived(t, w.far, "there")
	send(t, w.far, "and back")
	wantReceived(t, w.near, "and back")
	if got, want := w.near.RemoteAddr().String(), w.listener.Addr().String(); got != want {
		t.Errorf("connected to %s; want %s", got, want)
	}
	_ = w.near.Close() // the other end sees it
	wantEnd(t, w.far)
}

// Data sent across a partition is lost. When it heals the connection breaks.
func TestRelay_SeveredDiscards(t *testing.T) {
	w := newWire(t)
	w.partition()
	send(t, w.near, "lost")
	send(t, w.far, "lost")
	w.heal()
	wantEnd(t, w.near)
	wantEnd(t, w.far)
	near, far := w.connect(t)
	send(t, near, "new")
	wantReceived(t, far, "new")
}

// The other end of a connection that is closed across a partition does not notice
// until it heals.
func TestRelay_SeveredHidesClose(t *testing.T) {
	w := newWire(t)
	w.partition()
	_ = w.near.Close() // the other end must not see it
	send(t, w.far, "still there?")
	for r := range w.net.relays {
		if !r.isSevered() {
			t.Error("it is not severed")
		}
		// The far end is connected while the relay has not closed it.
		send(t, r.far, "still connected")
	}
	wantReceived(t, w.far, "still connected")
	w.heal()
	wantEnd(t, w.far)
}

// A dial across a partition blocks until its context ends or the partition heals.
func TestNetwork_DialAcrossPartition(t *testing.T) {
	w := newWire(t)
	w.partition()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := w.dial(ctx, w.listener.Addr().String())
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled dial: %v", err)
	}

	dialled := make(chan error)
	go func() {
		_, err := w.dial(t.Context(), w.listener.Addr().String())
		dialled <- err
	}()
	w.heal()
	if err := <-dialled; err != nil {
		t.Errorf("a dial that was blocked: %v", err)
	}
}
