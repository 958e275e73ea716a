package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// conn is a connection that the transport keeps track of until it is closed.
type conn struct {
	net.Conn               // TLS or not
	raw      net.Conn      // below it
	done     chan struct{} // closed by Close

	mu     sync.Mutex // guards what follows
	closed bool
	ends   []func()
}

// Close closes the connection below TLS: a farewell alert could block on a
// peer that does not read, and the protocol needs none.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.closed = true
	ends := c.ends
	c.mu.Unlock()

	close(c.done)
	err := c.raw.Close()
	for _, f := range ends {
		f()
	}
	return err
}

// atEnd has f called once, when the connection is closed or if it is already.
func (c *conn) atEnd(f func()) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.ends = append(c.ends, f)
	}
	c.mu.Unlock()
	if closed {
		f()
	}
}

// track takes a connection into the books; false: the transport is closed, and
// so is the connection.
func (t *Transport) track(raw net.Conn) (*conn, bool) {
	c := &conn{Conn: raw, raw: raw, done: make(chan struct{})}
	c.atEnd(func() {
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
		_ = c.Close() // nothing was said on it yet
	}
	return c, !closed
}

// dialRaw connects without saying anything.
func (t *Transport) dialRaw(ctx context.Context, addr string) (*conn, error) {
	dial := t.cfg.Dial
	if dial == nil {
		dial = t.dialTCP
	}
	raw, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if !t.permitted(raw.RemoteAddr()) {
		_ = raw.Close() // the refusal is the error to report
		return nil, fmt.Errorf("transport: dialling %s: %w", addr, ErrPlaintext)
	}
	c, ok := t.track(raw)
	if !ok {
		return nil, ErrClosed
	}
	if t.tls != nil {
		c.Conn = tls.Client(raw, t.tls.clientFor(addr))
	}
	return c, nil
}

// dialTCP refuses a forbidden address before the first packet leaves.
func (t *Transport) dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		if !t.permitted(&net.IPAddr{IP: net.ParseIP(host)}) {
			return ErrPlaintext
		}
		return nil
	}}
	return d.DialContext(ctx, "tcp", addr)
}

// permitted is the policy for plaintext.
func (t *Transport) permitted(remote net.Addr) bool {
	return t.tls != nil || t.cfg.Insecure || isLocal(remote)
}

// isLocal reports whether traffic with the address stays on this machine.
// Addresses that are not of IP (in memory, Unix sockets) do.
func isLocal(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.IPAddr:
		return a.IP.IsLoopback()
	}
	return true
}

// tlsPair holds the two sides of mutual TLS.
type tlsPair struct{ server, client *tls.Config }

func newTLSPair(cfg *tls.Config) *tlsPair {
	if cfg == nil {
		return nil
	}
	return &tlsPair{server: mutual(cfg), client: cfg.Clone()}
}

// mutual demands a certificate from whoever connects. Members are each
// other's equals, so the authorities for both directions are the same unless
// the embedder says otherwise.
func mutual(cfg *tls.Config) *tls.Config {
	s := cfg.Clone()
	s.ClientAuth = tls.RequireAndVerifyClientCert
	if s.ClientCAs == nil {
		s.ClientCAs = s.RootCAs
	}
	if choose := s.GetConfigForClient; choose != nil {
		s.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(h)
			if chosen == nil || err != nil {
				return chosen, err
			}
			m := chosen.Clone()
			m.GetConfigForClient = nil
			return mutual(m), nil
		}
	}
	return s
}

// clientFor expects the certificate of the host that is dialled, unless the
// embedder named one for all members.
func (p *tlsPair) clientFor(addr string) *tls.Config {
	c := p.client.Clone()
	if host, _, err := net.SplitHostPort(addr); err == nil && c.ServerName == "" {
		c.ServerName = host
	}
	return c
}
