package oneprocess

import (
	"context"
	"net"
	"sync"
)

// cable is a member's connection to the network. Unplugging it makes the member
// look crashed to the others, although it runs in the same process.
type cable struct {
	net.Listener

	mu        sync.Mutex
	unplugged bool       // guarded by mu
	conns     []net.Conn // guarded by mu; also those that are closed by now
}

// Accept implements net.Listener.
func (c *cable) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	return c.plug(conn, err)
}

// Dial is a Config.Dial.
func (c *cable) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	return c.plug(conn, err)
}

func (c *cable) plug(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unplugged {
		conn.Close()
		return nil, net.ErrClosed
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

// unplug closes all connections, as the end of a process does, and refuses new
// ones.
func (c *cable) unplug() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unplugged = true
	c.Listener.Close()
	for _, conn := range c.conns {
		conn.Close()
	}
}
