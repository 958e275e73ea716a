package appcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
)

// DialFunc is the type of Config.Dial.
type DialFunc = func(ctx context.Context, addr string) (net.Conn, error)

var errNoConn = errors.New("Dial has returned neither a connection nor an error")

// Dial returns a function that calls dial and heeds its context even if dial does not: a
// connection that comes too late is closed. nil stays nil.
func (c *Calls) Dial(dial DialFunc) DialFunc {
	if dial == nil {
		return nil
	}
	type dialed struct {
		conn net.Conn
		err  error
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		d, err := Do(c, "Dial to "+addr, maxLateDial, ctx.Done(), func() (d dialed) {
			conn, err := dial(ctx, addr)
			switch {
			case err != nil:
				d.err = Freeze(err)
			case conn == nil:
				d.err = errNoConn
			default:
				d.conn = c.conn(conn)
			}
			return d
		}, func(d dialed) {
			if d.conn != nil {
				_ = d.conn.Close() // no caller waits for it
			}
		})
		if errors.Is(err, ErrLate) {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if err != nil {
			return nil, err
		}
		return d.conn, d.err
	}
}

// Listener returns a listener that calls l and does not depend on its heeding Close: Accept
// returns once Close is called. An error means that l does not report its address before ctx
// is done.
func (c *Calls) Listener(ctx context.Context, l net.Listener) (net.Listener, error) {
	if native(l) {
		return l, nil
	}
	addr, err := Do(c, "Listener.Addr", MaxLate, ctx.Done(), func() net.Addr { return copyAddr(l.Addr()) }, nil)
	if err != nil {
		c.after("Listener.Close", func() { _ = l.Close() })
		if errors.Is(err, ErrLate) {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return nil, fmt.Errorf("Config.Listener does not report its address: %w", err)
	}
	return &listener{
		calls: c, to: l, addr: addr, closed: make(chan struct{}),
		results: make(chan accepted), named: make(chan net.Conn),
	}, nil
}

// native reports whether a listener or connection is one of package net, whose methods heed
// Close and deadlines.
func native(v any) bool {
	switch v.(type) {
	case *net.TCPListener, *net.UnixListener, *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// after calls f in the background, whatever is late.
func (c *Calls) after(key string, f func()) {
	c.mu.Lock()
	c.running++
	c.mu.Unlock()
	go (&call[struct{}]{calls: c, key: key, ended: make(chan struct{})}).run(func() struct{} { f(); return struct{}{} }, nil)
}

// copyAddr returns an address whose methods are not the application's.
func copyAddr(a net.Addr) net.Addr {
	switch a := a.(type) {
	case nil:
		return address{"unknown", "unknown"}
	case *net.TCPAddr, *net.UnixAddr, *net.IPAddr:
		return a
	}
	return address{a.Network(), a.String()}
}

type address struct{ network, text string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.text }

// Freeze returns an error that has its text, so that no other goroutine calls the
// application's function for it. Those of the standard library that are compared stay as they
// are.
func Freeze(err error) error {
	switch err.(type) { //nolint:errorlint // the outermost one decides
	case nil:
		return nil
	case *net.OpError, *net.DNSError:
		return err
	}
	for _, standard := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded} {
		if reflect.TypeOf(err) == reflect.TypeOf(standard) {
			return err
		}
	}
	f := &frozen{text: err.Error(), err: err}
	if n, ok := err.(net.Error); ok { //nolint:errorlint // as package net does
		f.timeout = n.Timeout()
	}
	return f
}

type frozen struct {
	text    string
	err     error
	timeout bool
}

func (f *frozen) Error() string   { return f.text }
func (f *frozen) Unwrap() error   { return f.err }
func (f *frozen) Timeout() bool   { return f.timeout }
func (f *frozen) Temporary() bool { return f.timeout }
