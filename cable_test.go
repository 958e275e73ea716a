package conclave

import (
	"context"
	"errors"
	"net"
	"sync"
)

// cable is a member's connection to the others. Unplugged, what runs through it
// breaks and nothing new gets through, in neither direction.
type cable struct {
	mu    sync.Mutex
	out   bool                  // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu
}

var errUnplugged = errors.New("unplugged")

func (c *cable) unplug() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = true
	for conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

func (c *cable) plug() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = false
}

func (c *cable) add(conn net.Conn) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out {
		conn.Close()
		return nil, errUnplugged
	}
	if c.conns == nil {
		c.conns = make(map[net.Conn]struct{})
	}
	c.conns[conn] = struct{}{}
	return conn, nil
}

func (c *cable) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return c.add(conn)
}

// listener hands out connections that the cable can break.
type listener struct {
	net.Listener
	cable *cable
}

func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if conn, err = l.cable.add(conn); err == nil {
			return conn, nil
		}
	}
}
