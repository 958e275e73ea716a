package transport

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

func TestNew_ReportsEveryFault(t *testing.T) {
	_, err := New(Config{Identity: Identity{Group: strings.Repeat("g", maxIdentity+1)}})
	if err == nil {
		t.Fatal("New succeeded")
	}
	for _, want := range []string{"no listener", "no handler", "no key", "no incarnation", "exceed the limit"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not contain %q", err, want)
		}
	}
}

// Plaintext beyond loopback requires Insecure.
func TestPlaintext_BeyondLoopback(t *testing.T) {
	wildcard := func() net.Listener {
		ln, err := net.Listen("tcp4", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	ln := wildcard()
	if _, err := New(Config{Identity: identity(1), Key: testKeys[1], Listener: ln, Handler: newEvents()}); !errors.Is(err, ErrPlaintext) {
		t.Errorf("listen beyond loopback: %v", err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("New did not close the listener: %v", err)
	}

	a := start(t, identity(1), listenTCP(t), nil)
	// 192.0.2.1 is reserved for documentation: a dial would take seconds.
	if _, err := a.connect(t.Context(), Target{Addr: "192.0.2.1:7000"}, wire.Kind_FORM); !errors.Is(err, ErrPlaintext) {
		t.Errorf("dial beyond loopback: %v", err)
	}

	b := start(t, identity(2), wildcard(), func(c *Config) { c.Insecure = true })
	if !b.network.permitted(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}) {
		t.Error("not permitted with Insecure")
	}
}

// An inbound connection from beyond loopback is closed before it is read.
func TestPlaintext_InboundFromBeyondLoopback(t *testing.T) {
	n := newMemNet()
	ln := &foreignListener{memListener: n.listen("a")}
	start(t, identity(1), ln, nil)
	c, err := n.dial(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection stayed open")
	}
}

type foreignListener struct{ *memListener }

func (l *foreignListener) Accept() (net.Conn, error) {
	c, err := l.memListener.Accept()
	return foreignConn{c}, err
}

type foreignConn struct{ net.Conn }

func (foreignConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7} }
