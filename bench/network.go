package main

import (
	"context"
	"net"
	"runtime/trace"
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
type network struct {
	bytes, writes atomic.Int64
	logged        bool // each write and read is in Go's execution trace, by its connection
}

// What the trace has of connections, with their addresses as the message.
const (
	writing = "writing"
	wrote   = "wrote"
	read    = "read"
)

type sent struct{ bytes, writes int64 }

func (n *network) sent() sent { return sent{n.bytes.Load(), n.writes.Load()} }

func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return n.counted(c), nil
}

func (n *network) counted(c net.Conn) net.Conn {
	counted := countedConn{Conn: c, network: n}
	if n.logged {
		local, remote := c.LocalAddr().String(), c.RemoteAddr().String()
		counted.out, counted.in = local+" to "+remote, remote+" to "+local
	}
	return counted
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
	return l.network.counted(c), nil
}

type countedConn struct {
	net.Conn
	network *network
	out, in string // for the trace
}

func (c countedConn) Write(b []byte) (int, error) {
	c.log(writing, c.out)
	n, err := c.Conn.Write(b)
	c.log(wrote, c.out)
	c.network.bytes.Add(int64(n))
	c.network.writes.Add(1)
	return n, err
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.log(read, c.in)
	return n, err
}

func (c countedConn) log(what, connection string) {
	if c.network.logged {
		trace.Log(context.Background(), what, connection)
	}
}
