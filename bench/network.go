package main

import (
	"context"
	"net"
	"sync/atomic"
)

// listen returns listeners on loopback, and their addresses.
func listen(n int) (listeners []net.Listener, addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, nil, err
		}
		listeners, addresses = append(listeners, l), append(addresses, l.Addr().String())
	}
	return listeners, addresses, nil
}

// network counts what members write to their connections, on both sides of each.
type network struct{ bytes, writes atomic.Int64 }

type sent struct{ bytes, writes int64 }

func (n *network) sent() sent { return sent{n.bytes.Load(), n.writes.Load()} }

func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return countedConn{c, n}, nil
}

func (n *network) wrap(l net.Listener) net.Listener { return countedListener{l, n} }

type countedListener struct {
	net.Listener
	network *network
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{c, l.network}, nil
}

type countedConn struct {
	net.Conn
	network *network
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.network.bytes.Add(int64(n))
	c.network.writes.Add(1)
	return n, err
}
