package conclave

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// bubbleNet is a network in memory, for members that live in a bubble of
// testing/synctest: whoever waits for it is durably blocked, so that time can
// go on. What is sent is there at once and in order.
type bubbleNet struct {
	mu        sync.Mutex
	listeners map[string]*bubbleListener // guarded by mu; by address
	cut       map[[2]int]bool            // guarded by mu; links that carry nothing; the smaller member first
	conns     map[*bubbleConn]struct{}   // guarded by mu; the dialled ends
}

func newBubbleNet() *bubbleNet {
	return &bubbleNet{
		listeners: make(map[string]*bubbleListener),
		cut:       make(map[[2]int]bool),
		conns:     make(map[*bubbleConn]struct{}),
	}
}

func link(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// set cuts a link or mends it. Over a link that is cut nothing comes and
// nothing fails: what is sent, the end of a connection included, waits until it
// is mended, as with TCP on a network that drops everything.
func (n *bubbleNet) set(a, b int, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[link(a, b)] = cut
	for c := range n.conns {
		if link(c.from, c.to) == link(a, b) {
			c.out.stall(cut)
			c.in.stall(cut)
		}
	}
}

// forget takes back what a member whose machine has lost power had still under
// way when it was cut off: nobody sends that a second time. Its process is gone.
func (n *bubbleNet) forget(member int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.from == member || c.to == member {
			c.in.drain()
			c.out.drain()
		}
	}
}

func (n *bubbleNet) listen(member int, addr string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &bubbleListener{net: n, member: member, addr: addr, backlog: make(chan net.Conn, 64), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l
}

// dial connects a member to an address.
func (n *bubbleNet) dial(ctx context.Context, from int, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	cut := l != nil && n.cut[link(from, l.member)]
	n.mu.Unlock()
	switch {
	case cut:
		<-ctx.Done()
		return nil, ctx.Err()
	case l == nil:
		return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
	}
	ours, theirs := n.connect(from, l.member, addr)
	select {
	case l.backlog <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *bubbleNet) connect(from, to int, addr string) (ours, theirs *bubbleConn) {
	there, back := newBubblePipe(), newBubblePipe()
	ours = &bubbleConn{net: n, from: from, to: to, out: there, in: back, remote: tcpAddr(addr)}
	theirs = &bubbleConn{net: n, from: to, to: from, out: back, in: there, remote: tcpAddr("127.0.0.1:1")}
	ours.key, theirs.key = ours, ours
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[ours] = struct{}{}
	there.stalled, back.stalled = n.cut[link(from, to)], n.cut[link(from, to)] // it may have been cut since the dialling
	return ours, theirs
}

func tcpAddr(addr string) *net.TCPAddr {
	host, port, _ := net.SplitHostPort(addr)
	var number int
	fmt.Sscan(port, &number)
	return &net.TCPAddr{IP: net.ParseIP(host), Port: number}
}

type bubbleListener struct {
	net     *bubbleNet
	member  int
	addr    string
	backlog chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *bubbleListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *bubbleListener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, l.addr)
		l.net.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.backlog: // nobody will accept it
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *bubbleListener) Addr() net.Addr { return tcpAddr(l.addr) }

// bubbleConn is one end of a connection.
type bubbleConn struct {
	net      *bubbleNet
	from, to int
	out, in  *bubblePipe
	remote   net.Addr
	key      *bubbleConn // under which the network knows the two ends
}

func (c *bubbleConn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *bubbleConn) Write(b []byte) (int, error) { return c.out.write(b) }

func (c *bubbleConn) Close() error {
	c.out.close(&c.out.noWriter)
	if last := c.in.close(&c.in.noReader); last {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		delete(c.net.conns, c.key)
	}
	return nil
}

func (c *bubbleConn) LocalAddr() net.Addr  { return tcpAddr("127.0.0.1:1") }
func (c *bubbleConn) RemoteAddr() net.Addr { return c.remote }

func (c *bubbleConn) SetDeadline(t time.Time) error {
	c.in.set(&c.in.readBy, t)
	c.out.set(&c.out.writeBy, t)
	return nil
}

func (c *bubbleConn) SetReadDeadline(t time.Time) error {
	c.in.set(&c.in.readBy, t)
	return nil
}

func (c *bubbleConn) SetWriteDeadline(t time.Time) error {
	c.out.set(&c.out.writeBy, t)
	return nil
}

// bubblePipe is one direction of a connection.
type bubblePipe struct {
	mu       sync.Mutex
	changed  sync.Cond // of mu
	data     []byte    // guarded by mu
	stalled  bool      // guarded by mu; nothing gets to the other end, an end of the connection included
	noWriter bool      // guarded by mu
	noReader bool      // guarded by mu
	readBy   patience  // guarded by mu
	writeBy  patience  // guarded by mu
}

// patience is a deadline, and what wakes who waits when it comes.
type patience struct {
	until time.Time
	timer *time.Timer
}

const bubblePipeBytes = 256 << 10

func newBubblePipe() *bubblePipe {
	p := new(bubblePipe)
	p.changed.L = &p.mu
	return p
}

func (p *bubblePipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.noReader:
			return 0, net.ErrClosed
		case p.readBy.over():
			return 0, os.ErrDeadlineExceeded
		case len(p.data) > 0 && !p.stalled:
			n := copy(b, p.data)
			p.data = append(p.data[:0], p.data[n:]...)
			p.changed.Broadcast()
			return n, nil
		case p.noWriter && !p.stalled:
			return 0, io.EOF
		}
		p.wait(&p.readBy)
	}
}

func (p *bubblePipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for sent := 0; ; {
		switch {
		case p.noWriter:
			return sent, net.ErrClosed
		case p.noReader && !p.stalled:
			return sent, syscall.EPIPE
		case p.writeBy.over():
			return sent, os.ErrDeadlineExceeded
		}
		n := min(len(b)-sent, bubblePipeBytes-len(p.data))
		if n > 0 {
			p.data = append(p.data, b[sent:sent+n]...)
			sent += n
			p.changed.Broadcast()
		}
		if sent == len(b) {
			return sent, nil
		}
		p.wait(&p.writeBy)
	}
}

func (w *patience) over() bool { return !w.until.IsZero() && !time.Now().Before(w.until) }

// wait waits for a change, and at most until the deadline. p.mu is held.
func (p *bubblePipe) wait(w *patience) {
	if !w.until.IsZero() {
		left := time.Until(w.until)
		if w.timer == nil {
			w.timer = time.AfterFunc(left, p.wake)
		} else {
			w.timer.Reset(left)
		}
		defer w.timer.Stop()
	}
	p.changed.Wait()
}

func (p *bubblePipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}

func (p *bubblePipe) set(w *patience, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shorter := w.until.IsZero() || !t.IsZero() && t.Before(w.until)
	w.until = t
	if shorter {
		p.changed.Broadcast() // who waits has to look at the new deadline
	}
}

// close ends one end; last: the other had ended before.
func (p *bubblePipe) close(end *bool) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*end = true
	p.changed.Broadcast()
	return p.noReader && p.noWriter
}

func (p *bubblePipe) stall(stalled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = stalled
	p.changed.Broadcast()
}

func (p *bubblePipe) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data = nil
}
