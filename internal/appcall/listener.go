package appcall

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// listener calls the application's listener. One goroutine calls its Accept.
type listener struct {
	calls   *Calls
	to      net.Listener
	addr    net.Addr
	once    sync.Once
	closed  chan struct{}
	calling bool          // owned by the goroutine that calls Accept: results gets a value
	results chan accepted // of the application's Accept
	named   chan net.Conn // connections whose addresses are known

	mu      sync.Mutex
	unnamed []*unnamed // guarded by mu; from the oldest
}

// accepted is a result of the application's Accept.
type accepted struct {
	conn net.Conn
	err  error
}

// unnamed is a connection that has not reported its addresses yet: behind a proxy, these may come
// with the first bytes of its client.
type unnamed struct {
	conn      net.Conn
	dismissed atomic.Bool // it is closed, or being closed
}

// The limits of connections that have not reported their addresses. The oldest is closed for
// another one.
const (
	maxUnnamed  = 64
	unnamedTime = 5 * time.Second // as long as a handshake has
)

var errAccept = errors.New("Listener.Accept has failed")

func (l *listener) Addr() net.Addr { return l.addr }

// Accept does not wait for the addresses of one connection before it accepts the next one.
func (l *listener) Accept() (net.Conn, error) {
	for {
		if !l.calling {
			l.calling = true
			l.calls.after("Listener.Accept", l.accept)
		}
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		case c := <-l.named:
			return c, nil
		case a := <-l.results:
			l.calling = false
			switch {
			case a.err != nil:
				return nil, a.err
			case native(a.conn):
				return a.conn, nil
			}
			l.name(a.conn)
		}
	}
}

// accept calls the application's Accept, which may panic or end the goroutine.
func (l *listener) accept() {
	a := accepted{err: errAccept}
	defer func() {
		select {
		case l.results <- a:
		case <-l.closed:
			if a.conn != nil {
				_ = a.conn.Close()
			}
		}
	}()
	switch conn, err := l.to.Accept(); {
	case err != nil:
		a.err = Freeze(err)
	case conn == nil:
		a.err = errNoConn
	default:
		a = accepted{conn: conn}
	}
}

// name asks a connection for its addresses.
func (l *listener) name(conn net.Conn) {
	u := &unnamed{conn: conn}
	l.mu.Lock()
	var oldest *unnamed
	if len(l.unnamed) >= maxUnnamed {
		oldest = l.unnamed[0]
		l.unnamed = l.unnamed[1:]
	}
	l.unnamed = append(l.unnamed, u)
	l.mu.Unlock()
	if oldest != nil {
		l.dismiss(oldest)
	}
	late := time.AfterFunc(unnamedTime, func() { l.dismiss(u) })
	l.calls.after("Conn.RemoteAddr", func() {
		passed := false
		defer func() {
			late.Stop()
			if l.forget(u); !passed {
				l.dismiss(u)
			}
		}()
		c := l.calls.conn(conn)
		if u.dismissed.Load() {
			return
		}
		select {
		case l.named <- c:
			passed = true
		case <-l.closed:
		}
	})
}

func (l *listener) forget(u *unnamed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unnamed = slices.DeleteFunc(l.unnamed, func(o *unnamed) bool { return o == u })
}

// dismiss closes a connection that is not passed on, or reports its addresses too late.
func (l *listener) dismiss(u *unnamed) {
	if u.dismissed.CompareAndSwap(false, true) {
		l.calls.after("Conn.Close", func() { _ = u.conn.Close() })
	}
}

// Close does not wait for the application's listener: Wait does.
func (l *listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		err = nil
		l.mu.Lock()
		waiting := slices.Clone(l.unnamed)
		l.mu.Unlock()
		for _, u := range waiting {
			l.dismiss(u)
		}
		l.calls.after("Listener.Close", func() { _ = l.to.Close() })
	})
	return err
}
