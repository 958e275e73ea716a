package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// conn is a connection that the transport tracks until it is closed.
type conn struct {
	net.Conn               // TLS or not
	raw      net.Conn      // below TLS
	inbound  bool          // the peer dialed
	from     *hello        // of the other side, proven; set by the handshake
	done     chan struct{} // closed by Close

	mu      sync.Mutex // guards what follows
	closed  bool
	onClose []func()
}

// Close closes the connection below TLS: a close_notify alert could block on a
// peer that does not read, and the protocol does not need it.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.closed = true
	callbacks := c.onClose
	c.mu.Unlock()

	close(c.done)
	err := c.raw.Close()
	for _, f := range callbacks {
		f()
	}
	return err
}

// afterClose arranges for f to be called once, when the connection is closed,
// or now if it already is.
func (c *conn) afterClose(f func()) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.onClose = append(c.onClose, f)
	}
	c.mu.Unlock()
	if closed {
		f()
	}
}

// track wraps a connection for Close to find. If the transport is closed, it
// closes the connection and returns false.
func (t *Transport) track(raw net.Conn) (*conn, bool) {
	c := &conn{Conn: raw, raw: raw, done: make(chan struct{})}
	c.afterClose(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.conns, c)
	})
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.conns[c] = struct{}{}
	}
	t.mu.Unlock()
	if closed {
		_ = c.Close() // unused
	}
	return c, !closed
}

// dial connects, without a handshake.
func (t *Transport) dial(ctx context.Context, to Target) (*conn, error) {
	dial := t.cfg.Dial
	if dial == nil {
		dial = t.dialTCP
	}
	raw, err := dial(ctx, to.Addr)
	if err != nil {
		return nil, err
	}
	if !t.permitted(raw.RemoteAddr()) {
		_ = raw.Close() // unused
		return nil, ErrPlaintext
	}
	c, ok := t.track(raw)
	if !ok {
		return nil, ErrClosed
	}
	if t.tls != nil {
		c.Conn = tls.Client(raw, t.tls.clientFor(to.certificateHost()))
	}
	return c, nil
}

// dialTCP refuses a forbidden address before it sends the first packet.
func (t *Transport) dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		if !t.permitted(&net.IPAddr{IP: net.ParseIP(host)}) {
			return fmt.Errorf("%s: %w", host, ErrPlaintext)
		}
		return nil
	}}
	return d.DialContext(ctx, "tcp", addr)
}

// permitted is the policy for plaintext.
func (t *Transport) permitted(remote net.Addr) bool {
	return t.tls != nil || t.cfg.Insecure || isLoopback(remote)
}

// isLoopback reports whether traffic with the address stays on this machine, as
// it does for addresses that are not IP (in memory, Unix sockets).
func isLoopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.IPAddr:
		return a.IP.IsLoopback()
	}
	return true
}
