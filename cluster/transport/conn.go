package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/conclave-go/conclave/cluster/transport/slots"
)

// conn is a connection that the transport tracks until it is closed.
type conn struct {
	net.Conn               // TLS or not
	raw      net.Conn      // below TLS
	inbound  bool          // the peer dialed
	from     *hello        // of the other side, proven; set by the handshake
	place    *slots.Slot   // inbound: among the handshakes, until the handshake ends
	release  func()        // inbound, of a member: gives up its place among those of members, which Close does too; set by the handshake
	done     chan struct{} // closed by Close

	mu      sync.Mutex // guards what follows
	closed  bool
	failure error // the first one of reading or writing, if the connection was not closed here before
	onClose []func()
}

// note notes the first failure of the connection, and passes it on.
func (c *conn) note(err error) error {
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.failure == nil && !c.closed {
			c.failure = err
		}
	}
	return err
}

// endedByHost reports whether the host at the other end has ended the connection.
func (c *conn) endedByHost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return isEndedByHost(c.failure)
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

// track adds a connection to conns until it is closed, unless closed is set. mu guards both.
func track(raw net.Conn, mu *sync.Mutex, closed *bool, conns map[*conn]struct{}) (*conn, bool) {
	c := &conn{Conn: raw, raw: raw, done: make(chan struct{})}
	c.afterClose(func() {
		mu.Lock()
		defer mu.Unlock()
		delete(conns, c)
	})
	mu.Lock()
	late := *closed
	if !late {
		conns[c] = struct{}{}
	}
	mu.Unlock()
	if late {
		_ = c.Close() // unused
	}
	return c, !late
}

// network is what members and clients dial with.
type network struct {
	dialer   func(ctx context.Context, addr string) (net.Conn, error) // nil: TCP
	resolver func(ctx context.Context, host string) ([]netip.Addr, error)
	tls      *tlsPair
	insecure bool
}

// dial connects, without a handshake.
func (n network) dial(ctx context.Context, to Target, track func(net.Conn) (*conn, bool)) (*conn, error) {
	raw, err := n.dialAddr(ctx, to.Addr)
	if err != nil {
		return nil, err
	}
	if !n.permitted(raw.RemoteAddr()) {
		_ = raw.Close() // unused
		return nil, ErrPlaintext
	}
	c, ok := track(raw)
	if !ok {
		return nil, ErrClosed
	}
	if n.tls != nil {
		c.Conn = tls.Client(raw, n.tls.clientFor(to.certificateHost()))
	}
	return c, nil
}

// dialAddr connects to an address, by whatever means the application has chosen.
func (n network) dialAddr(ctx context.Context, addr string) (net.Conn, error) {
	if n.dialer != nil {
		return n.dialer(ctx, addr)
	}
	return n.dialTCP(ctx, addr)
}

// dialTCP refuses a forbidden address before it sends the first packet.
func (n network) dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		if !n.permitted(&net.IPAddr{IP: net.ParseIP(host)}) {
			return fmt.Errorf("%s: %w", host, ErrPlaintext)
		}
		return nil
	}}
	return d.DialContext(ctx, "tcp", addr)
}

// isRefused reports whether a dial has failed because the host there refuses connections to the address. Of a name that
// stands for several addresses a dial reports the first that fails, so each of them is dialed then.
func (n *handshaker) isRefused(ctx context.Context, addr string, dialed error) bool {
	var connect *ConnectError
	if !errors.As(dialed, &connect) || connect.Handshake || !isConnectionRefused(connect.Err) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timing.Dial)
	defer cancel()
	return !n.network.resolves(addr) || n.network.allRefuse(ctx, addr)
}

// allRefuse reports whether each address of a name refuses connections.
func (n network) allRefuse(ctx context.Context, addr string) bool {
	targets, err := n.resolve(ctx, addr)
	if err != nil {
		return false
	}
	for _, to := range targets {
		c, err := n.dialAddr(ctx, to.Addr)
		if err == nil {
			_ = c.Close() // it was not refused, which is all that was asked
		}
		if !isConnectionRefused(err) {
			return false
		}
	}
	return true
}

// permitted is the policy for plaintext.
func (n network) permitted(remote net.Addr) bool {
	return n.tls != nil || n.insecure || isLoopback(remote)
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
