package appcall

import (
	"errors"
	"net"
	"sync"
	"time"
)

// conn returns a connection that calls the application's, and whose methods return once it is
// closed.
func (c *Calls) conn(to net.Conn) net.Conn {
	if native(to) {
		return to
	}
	d := &conn{Conn: to, calls: c, local: copyAddr(to.LocalAddr()), remote: copyAddr(to.RemoteAddr()), closed: make(chan struct{})}
	d.in.setting, d.out.setting = make(chan struct{}, 1), make(chan struct{}, 1)
	return d
}

type conn struct {
	net.Conn
	calls         *Calls
	local, remote net.Addr
	once          sync.Once
	closed        chan struct{}

	mu      sync.Mutex
	in, out direction // guarded by mu
}

// direction is one of the two of a connection.
type direction struct {
	buf      []byte     // for one transfer; nil: in use, or not needed yet
	deadline *time.Time // to be set; nil: it is set
	until    time.Time  // the latest deadline; zero: none
	busy     bool       // a transfer is under way
	overdue  *time.Timer

	// setting is full while the application's function sets a deadline, so that the latest is the last.
	// It is no mutex: the function may wait, and time in a bubble of synctest would not pass meanwhile.
	setting chan struct{}
}

// overdueAfter is how long after its deadline a transfer is under way until the connection is
// closed: the application's connection does not heed deadlines.
const overdueAfter = time.Second

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
	r, err := c.transfer("Conn.Read", func() (int, error) {
		if err := c.apply(&c.in, c.Conn.SetReadDeadline); err != nil {
			return 0, err
		}
		return c.Conn.Read(buf)
	})
	if err != nil {
		c.put(&c.in, nil)
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
		w, err := c.transfer("Conn.Write", func() (int, error) {
			if err := c.apply(&c.out, c.Conn.SetWriteDeadline); err != nil {
				return 0, err
			}
			return c.Conn.Write(buf)
		})
		if err != nil {
			c.put(&c.out, nil)
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

func (c *conn) transfer(name string, f func() (int, error)) (transferred, error) {
	r, err := Do(c.calls, name, 0, c.closed, func() transferred {
		n, err := f()
		return transferred{n, Freeze(err)}
	}, nil)
	if errors.Is(err, ErrLate) {
		err = net.ErrClosed
	}
	return r, err
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.setDeadline(&c.in, t, "Conn.SetReadDeadline", c.Conn.SetReadDeadline)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.setDeadline(&c.out, t, "Conn.SetWriteDeadline", c.Conn.SetWriteDeadline)
	return nil
}

// setDeadline leaves a deadline to the next transfer, or sets it in the background for one that
// is under way.
func (c *conn) setDeadline(d *direction, t time.Time, name string, set func(time.Time) error) {
	c.mu.Lock()
	queued := d.deadline != nil // who is to set that one sets this one
	d.deadline, d.until = &t, t
	c.watch(d)
	busy := d.busy
	c.mu.Unlock()
	if busy && !queued {
		c.calls.after(name, func() { _ = c.apply(d, set) })
	}
}

// apply sets the latest deadline, unless it is set. It calls the application's function.
func (c *conn) apply(d *direction, set func(time.Time) error) error {
	d.setting <- struct{}{}
	defer func() { <-d.setting }()
	c.mu.Lock()
	t := d.deadline
	d.deadline = nil
	c.mu.Unlock()
	if t == nil {
		return nil
	}
	return set(*t)
}

// watch has the connection closed if the transfer that is under way does not end with its
// deadline. It is called with mu held.
func (c *conn) watch(d *direction) {
	if d.overdue != nil {
		d.overdue.Stop()
		d.overdue = nil
	}
	if !d.busy || d.until.IsZero() {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(d.until)+overdueAfter, func() {
		c.mu.Lock()
		over := d.overdue == timer
		c.mu.Unlock()
		if over {
			_ = c.Close()
		}
	})
	d.overdue = timer
}

// take begins a transfer and returns its buffer.
func (c *conn) take(d *direction, size int) (buf []byte) {
	size = min(size, maxTransfer)
	c.mu.Lock()
	defer c.mu.Unlock()
	buf, d.buf, d.busy = d.buf, nil, true
	c.watch(d)
	if cap(buf) < size {
		buf = make([]byte, size)
	}
	return buf[:size]
}

// put ends a transfer. nil: the application's function may still use the buffer.
func (c *conn) put(d *direction, buf []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.buf, d.busy = buf, false
	c.watch(d)
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
