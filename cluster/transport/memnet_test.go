package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// memNet is an in-memory network of net.Pipe connections, for synctest bubbles.
type memNet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	dialCount map[string]int
}

func newMemNet() *memNet {
	return &memNet{listeners: make(map[string]*memListener), dialCount: make(map[string]int)}
}

type memListener struct {
	net    *memNet
	addr   memAddr
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type memAddr string

func (memAddr) Network() string  { return "memory" }
func (a memAddr) String() string { return string(a) }

func (n *memNet) listen(addr string) *memListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &memListener{net: n, addr: memAddr(addr), accept: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l
}

func (n *memNet) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.dialCount[addr]++
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	ours, theirs := net.Pipe()
	select {
	case l.accept <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *memNet) dials(addr string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dialCount[addr]
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		if l.net.listeners[l.addr.String()] == l {
			delete(l.net.listeners, l.addr.String())
		}
	})
	return nil
}

func (l *memListener) Addr() net.Addr { return l.addr }
