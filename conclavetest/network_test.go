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
		_ = l.Close() // it has nothing to lose
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
	t.Cleanup(func() { _, _ = near.Close(), far.Close() }) // the tests close what matters to them
	return near, far
}

func (w *wire) cut()  { w.net.arrange([]int{1, 0}) }
func (w *wire) heal() { w.net.arrange([]int{0, 0}) }

func say(t *testing.T, to net.Conn, what string) {
	t.Helper()
	if _, err := to.Write([]byte(what)); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, from net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// hearEnd wants a connection to break without another word.
func hearEnd(t *testing.T, from net.Conn) {
	t.Helper()
	if n, err := from.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("heard %d bytes, %v", n, err)
	}
}

// Without a cut a connection is a connection, its addresses and its end included.
func TestCarry(t *testing.T) {
	w := newWire(t)
	say(t, w.near, "there")
	hear(t, w.far, "there")
	say(t, w.far, "and back")
	hear(t, w.near, "and back")
	if got, want := w.near.RemoteAddr().String(), w.listener.Addr().String(); got != want {
		t.Errorf("connected to %s; want %s", got, want)
	}
	_ = w.near.Close() // what it does is seen at the other end
	hearEnd(t, w.far)
}

// What is said across a cut is taken and gone, also after it; then the
// connection breaks, since bytes are missing.
func TestCutSwallows(t *testing.T) {
	w := newWire(t)
	w.cut()
	say(t, w.near, "lost")
	say(t, w.far, "lost")
	w.heal()
	hearEnd(t, w.near)
	hearEnd(t, w.far)
	near, far := w.connect(t)
	say(t, near, "new")
	hear(t, far, "new")
}

// Of an end that is closed across a cut the other one learns after the cut, when
// everything breaks, and not before.
func TestCutHidesTheEnd(t *testing.T) {
	w := newWire(t)
	w.cut()
	_ = w.near.Close() // the other end must not see it
	say(t, w.far, "still there?")
	for r := range w.net.relays {
		if !r.isSevered() {
			t.Error("it is not cut")
		}
		// The far end has a connection for as long as the relay has not closed it.
		say(t, r.far, "as if from nowhere")
	}
	hear(t, w.far, "as if from nowhere")
	w.heal()
	hearEnd(t, w.far)
}

// Who dials across a cut waits: until it gives up, or until the cut is healed.
func TestDialAcrossCut(t *testing.T) {
	w := newWire(t)
	w.cut()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := w.dial(ctx, w.listener.Addr().String())
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a dial that gave up: %v", err)
	}

	dialled := make(chan error)
	go func() {
		_, err := w.dial(t.Context(), w.listener.Addr().String())
		dialled <- err
	}()
	w.heal()
	if err := <-dialled; err != nil {
		t.Errorf("a dial that waited: %v", err)
	}
}
