package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection.
type conn struct {
	net      *Network
	from, to int
	out, in  *pipe
	remote   net.Addr
	key      *conn // under which the network knows both ends
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

func (c *conn) Close() error {
	c.out.close(&c.out.noWriter)
	if last := c.in.close(&c.in.noReader); last {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		delete(c.net.conns, c.key)
	}
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return tcpAddr("127.0.0.1:1") }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

// pipe is one direction of a connection.
type pipe struct {
	mu       sync.Mutex
	changed  sync.Cond // of mu
	segments []segment // guarded by mu; none is empty
	size     int       // guarded by mu; bytes in segments
	fault    fault     // guarded by mu
	broken   bool      // guarded by mu; reset
	noWriter bool      // guarded by mu
	noReader bool      // guarded by mu
	readBy   deadline  // guarded by mu
	writeBy  deadline  // guarded by mu
}

// segment is what one write has sent, and when it arrives.
type segment struct {
	data []byte
	due  time.Time
}

// rate is the bandwidth of one direction of a link.
type rate struct {
	perSecond int

	mu   sync.Mutex
	free time.Time // guarded by mu; when the link has carried what was sent
}

// arrival returns when n bytes that are sent now arrive.
func (f *fault) arrival(n int) time.Time {
	at := time.Now()
	if r := f.rate; r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.free.After(at) {
			at = r.free
		}
		at = at.Add(time.Duration(n) * time.Second / time.Duration(r.perSecond))
		r.free = at
	}
	return at.Add(f.delay)
}

// deadline is that of a reader or writer, with the timer that wakes it.
type deadline struct {
	at    time.Time // zero: none
	timer *time.Timer
}

const pipeBytes = 256 << 10

func newPipe() *pipe {
	p := new(pipe)
	p.changed.L = &p.mu
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var due time.Time
		switch {
		case p.noReader:
			return 0, net.ErrClosed
		case p.broken:
			return 0, syscall.ECONNRESET
		case p.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case p.fault.cut:
		case len(p.segments) > 0:
			if due = p.segments[0].due; !time.Now().Before(due) {
				return p.take(b), nil
			}
		case p.noWriter:
			return 0, io.EOF
		}
		p.wait(&p.readBy, due)
	}
}

// take reads from the first segment. p.mu is held.
func (p *pipe) take(b []byte) int {
	first := &p.segments[0]
	n := copy(b, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		p.segments = p.segments[1:]
	}
	p.size -= n
	p.changed.Broadcast()
	return n
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for sent := 0; ; {
		switch {
		case p.noWriter:
			return sent, net.ErrClosed
		case p.broken:
			return sent, syscall.ECONNRESET
		case p.noReader && !p.fault.cut:
			return sent, syscall.EPIPE
		case p.writeBy.passed():
			return sent, os.ErrDeadlineExceeded
		}
		if n := min(len(b)-sent, pipeBytes-p.size); n > 0 {
			p.segments = append(p.segments, segment{append([]byte(nil), b[sent:sent+n]...), p.fault.arrival(n)})
			p.size += n
			sent += n
			p.changed.Broadcast()
		}
		if sent == len(b) {
			return sent, nil
		}
		p.wait(&p.writeBy, time.Time{})
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// wait waits for a change, at most until the deadline or until due. p.mu is held.
func (p *pipe) wait(d *deadline, due time.Time) {
	until := d.at
	if until.IsZero() || !due.IsZero() && due.Before(until) {
		until = due
	}
	if !until.IsZero() {
		left := time.Until(until)
		if d.timer == nil {
			d.timer = time.AfterFunc(left, p.wake)
		} else {
			d.timer.Reset(left)
		}
		defer d.timer.Stop()
	}
	p.changed.Wait()
}

func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}

func (p *pipe) setDeadline(d *deadline, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	earlier := d.at.IsZero() || !t.IsZero() && t.Before(d.at)
	d.at = t
	if earlier {
		p.changed.Broadcast() // the timer of a waiting call is for the old deadline
	}
}

// close ends one end and reports whether the other had ended before.
func (p *pipe) close(end *bool) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*end = true
	p.changed.Broadcast()
	return p.noReader && p.noWriter
}

func (p *pipe) set(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	p.changed.Broadcast()
}

func (p *pipe) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	p.segments, p.size = nil, 0
	p.changed.Broadcast()
}

func (p *pipe) discard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.segments, p.size = nil, 0
}
