package appcall

import (
	"errors"
	"net"
	"sync"
)

// conn returns a connection that calls the application's, and whose methods return once it is
// closed.
func (c *Calls) conn(to net.Conn) net.Conn {
	if native(to) {
		return to
	}
	return &conn{Conn: to, calls: c, local: copyAddr(to.LocalAddr()), remote: copyAddr(to.RemoteAddr()), closed: make(chan struct{})}
}

type conn struct {
	net.Conn
	calls         *Calls
	local, remote net.Addr
	once          sync.Once
	closed        chan struct{}

	mu      sync.Mutex
	in, out []byte // guarded by mu; for one Read and one Write; nil: in use, or not needed yet
}

// maxTransfer bounds what a Read or a part of a Write copies: the application's function may
// use its buffer after the caller has left.
const maxTransfer = 64 << 10

type transferred struct {
	n   int
	err error
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Read(b []byte) (int, error) {
	buf := c.take(&c.in, len(b))
	r, err := c.transfer("Conn.Read", c.Conn.Read, buf)
	if err != nil {
		return 0, err
	}
	n := copy(b, buf[:max(0, min(r.n, len(buf)))])
	c.put(&c.in, buf)
	return n, r.err
}

func (c *conn) Write(b []byte) (written int, err error) {
	for first := true; first || len(b) > 0; first = false {
		buf := c.take(&c.out, len(b))
		n := copy(buf, b)
		w, err := c.transfer("Conn.Write", c.Conn.Write, buf)
		if err != nil {
			return written, err
		}
		c.put(&c.out, buf)
		written += max(0, min(w.n, n))
		if w.err != nil {
			return written, w.err
		}
		b = b[n:]
	}
	return written, nil
}

func (c *conn) transfer(name string, f func([]byte) (int, error), buf []byte) (transferred, error) {
	r, err := Do(c.calls, name, 0, c.closed, func() transferred {
		n, err := f(buf)
		return transferred{n, Freeze(err)}
	}, nil)
	if errors.Is(err, ErrLate) {
		err = net.ErrClosed
	}
	return r, err
}

// take returns the buffer kept, or a new one.
func (c *conn) take(kept *[]byte, size int) []byte {
	size = min(size, maxTransfer)
	c.mu.Lock()
	defer c.mu.Unlock()
	buf := *kept
	*kept = nil
	if cap(buf) < size {
		return make([]byte, size)
	}
	return buf[:size]
}

func (c *conn) put(kept *[]byte, buf []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*kept = buf
}

// Close does not wait for the application's connection: Wait does.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		err = nil
		c.calls.after("Conn.Close", func() { _ = c.Conn.Close() })
	})
	return err
}
