package appcall

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A function that does not return costs its caller the time until done, and its goroutine; a
// late result is passed on.
func TestDo_Late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		release, late := make(chan struct{}), make(chan int, 10)
		f := func() int { <-release; return 7 }
		done := make(chan struct{})
		close(done)
		for i := range 3 {
			_, err := Do(&c, "f", 2, done, f, func(v int) { late <- v })
			if i < 2 && !errors.Is(err, ErrLate) || i == 2 && !errors.Is(err, ErrStuck) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if v, err := Do(&c, "g", 2, nil, func() int { return 8 }, nil); v != 8 || err != nil {
			t.Errorf("another function: %d, %v", v, err)
		}
		began := time.Now()
		if left := c.Wait(time.Second); left != 2 || time.Since(began) != time.Second {
			t.Errorf("%d calls left after %v", left, time.Since(began))
		}
		close(release)
		if left := c.Wait(time.Second); left != 0 || len(late) != 2 {
			t.Errorf("%d calls left, %d late results", left, len(late))
		}
		if v, err := Do(&c, "f", 2, nil, f, nil); v != 7 || err != nil {
			t.Errorf("after all have returned: %d, %v", v, err)
		}
	})
}

// A panic, or the end of the goroutine, is an error and a line in the log.
func TestDo_Panics(t *testing.T) {
	for name, f := range map[string]func(){"panic": func() { panic("a bug") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			c := Calls{Logger: slog.New(slog.NewTextHandler(&text, nil))}
			var p *PanicError
			if err := Run(&c, "f", 1, nil, f); !errors.As(err, &p) {
				t.Errorf("%v", err)
			}
			if !strings.Contains(text.String(), "function=f") {
				t.Errorf("log: %s", text.String())
			}
			if left := c.Wait(time.Minute); left != 0 {
				t.Errorf("%d calls left", left)
			}
		})
	}
}

// Dial returns when its context is done, and closes a connection that comes later.
func TestDial_IgnoresContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		release := make(chan struct{})
		here, there := net.Pipe()
		dial := c.Dial(func(context.Context, string) (net.Conn, error) { <-release; return here, nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if conn, err := dial(ctx, "a:1"); conn != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", conn, err)
		}
		close(release)
		if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is open: %v", err)
		}
		c.Wait(time.Minute)
	})
}

// Addresses that Dial does not return for cost no other address its connections.
func TestDial_StuckAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		release := make(chan struct{})
		dial := c.Dial(func(_ context.Context, addr string) (net.Conn, error) {
			if addr == "stuck:1" {
				<-release
			}
			return nil, io.EOF
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 10 {
			_, _ = dial(ctx, "stuck:1")
		}
		if c.total != maxLateDial {
			t.Errorf("%d calls are late, want %d", c.total, maxLateDial)
		}
		if _, err := dial(t.Context(), "other:1"); err != io.EOF {
			t.Errorf("%v", err)
		}
		close(release)
		c.Wait(time.Minute)
	})
}

// Dial may return neither a connection nor an error, by a bug.
func TestDial_Nothing(t *testing.T) {
	var c Calls
	dial := c.Dial(func(context.Context, string) (net.Conn, error) { return nil, nil })
	if conn, err := dial(t.Context(), "a:1"); conn != nil || !errors.Is(err, errNoConn) {
		t.Errorf("%v, %v", conn, err)
	}
}

// deaf is a listener and a connection none of whose methods returns.
type deaf struct {
	net.Listener
	net.Conn
	release chan struct{}
}

func (d deaf) Accept() (net.Conn, error)        { <-d.release; return nil, io.EOF }
func (d deaf) Close() error                     { <-d.release; return nil }
func (d deaf) Addr() net.Addr                   { return address{"deaf", "deaf"} }
func (d deaf) LocalAddr() net.Addr              { return address{"deaf", "deaf"} }
func (d deaf) RemoteAddr() net.Addr             { return address{"deaf", "deaf"} }
func (d deaf) Read([]byte) (int, error)         { <-d.release; return 0, io.EOF }
func (d deaf) SetReadDeadline(time.Time) error  { return nil }
func (d deaf) SetWriteDeadline(time.Time) error { return nil }
func (d deaf) Write(b []byte) (int, error)      { <-d.release; return len(b), nil }

// The methods of a listener and of a connection return once it is closed.
func TestNetwork_IgnoresClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		d := deaf{release: make(chan struct{})}
		l, err := c.Listener(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		conn := c.conn(d)
		results := make(chan error, 3)
		go func() { _, err := l.Accept(); results <- err }()
		go func() { _, err := conn.Read(make([]byte, 1)); results <- err }()
		go func() { _, err := conn.Write(make([]byte, 1)); results <- err }()
		synctest.Wait()
		_, _ = l.Close(), conn.Close()
		for range 3 {
			if err := <-results; !errors.Is(err, net.ErrClosed) {
				t.Errorf("%v", err)
			}
		}
		if left := c.Wait(time.Second); left != 5 {
			t.Errorf("%d calls have not returned, want 5", left)
		}
		close(d.release)
		if left := c.Wait(time.Second); left != 0 {
			t.Errorf("%d calls left", left)
		}
	})
}

// A connection of the application carries all bytes, in both directions, and its errors.
func TestNetwork_Transfers(t *testing.T) {
	var c Calls
	here, there := net.Pipe()
	conn := c.conn(here)
	sent := bytes.Repeat([]byte("0123456789"), 30_000)
	go func() { _, _ = conn.Write(sent); _ = conn.Close() }()
	if got, err := io.ReadAll(there); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes: %v", len(got), len(sent), err)
	}
	here, there = net.Pipe()
	conn = c.conn(here)
	go func() { _, _ = there.Write(sent); _ = there.Close() }()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes: %v", len(got), len(sent), err)
	}
	here, _ = net.Pipe()
	conn = c.conn(here)
	_ = conn.SetReadDeadline(time.Now())
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// failure is an error of the application.
type failure struct{ calls *int }

func (f failure) Error() string   { *f.calls++; return "failure" }
func (f failure) Timeout() bool   { return true }
func (f failure) Temporary() bool { return true }

// The text of an error is asked for once.
func TestFreeze(t *testing.T) {
	n := 0
	err := Freeze(failure{&n})
	for range 3 {
		if err.Error() != "failure" {
			t.Error(err)
		}
	}
	var own failure
	var timeout net.Error
	if n != 1 || !errors.As(err, &own) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%d calls of Error, %v", n, err)
	}
	for _, err := range []error{nil, io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, &net.OpError{}} {
		if Freeze(err) != err {
			t.Errorf("another error for %v", err)
		}
	}
}

// nameless is a connection that does not report its address before it is closed, as behind a proxy
// whose header has not come.
type nameless struct {
	deaf
	closed chan struct{}
	once   *sync.Once
}

func (n nameless) RemoteAddr() net.Addr { <-n.closed; return address{"none", "none"} }
func (n nameless) Close() error         { n.once.Do(func() { close(n.closed) }); return nil }

// accepting is a listener of given connections.
type accepting struct {
	deaf
	conns chan net.Conn
}

func (a accepting) Accept() (net.Conn, error) { return <-a.conns, nil }

// A connection that does not report its address keeps no other one out, and is closed.
func TestListener_AddressBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		to := accepting{deaf{release: make(chan struct{})}, make(chan net.Conn)}
		l, err := c.Listener(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan net.Conn)
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					close(results)
					return
				}
				results <- conn
			}
		}()
		var blocked []nameless
		for range 2 * 64 {
			n := nameless{closed: make(chan struct{}), once: new(sync.Once)}
			blocked = append(blocked, n)
			to.conns <- n
		}
		good, there := net.Pipe()
		defer there.Close()
		to.conns <- good
		synctest.Wait()
		select {
		case conn := <-results:
			if conn.RemoteAddr().String() != "pipe" {
				t.Errorf("a connection of %v", conn.RemoteAddr())
			}
			_ = conn.Close()
		default:
			t.Error("the connection is not accepted")
		}
		time.Sleep(time.Minute)
		for _, n := range blocked {
			select {
			case <-n.closed:
			default:
				t.Fatal("a connection without an address is open")
			}
		}
		_ = l.Close()
		close(to.release)
		close(to.conns)
		for range results {
		}
		c.Wait(time.Minute)
	})
}

// A transfer that ignores its deadline ends with the connection.
func TestConn_IgnoresDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		d := deaf{release: make(chan struct{})}
		for name, transfer := range map[string]func(net.Conn) error{
			"Read":  func(conn net.Conn) error { _, err := conn.Read(make([]byte, 1)); return err },
			"Write": func(conn net.Conn) error { _, err := conn.Write(make([]byte, 1)); return err },
		} {
			for _, during := range []bool{false, true} {
				conn := c.conn(d)
				set := func() { _ = conn.SetDeadline(time.Now().Add(time.Second)) }
				if during {
					time.AfterFunc(time.Second, set)
				} else {
					set()
				}
				ended := make(chan error, 1)
				go func() { ended <- transfer(conn) }()
				select {
				case err := <-ended:
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("%s: %v", name, err)
					}
				case <-time.After(time.Minute):
					t.Errorf("%s does not return", name)
				}
				_ = conn.Close()
			}
		}
		close(d.release)
		c.Wait(time.Minute)
	})
}

// slowDeadlines notes which deadline was set last. Earlier ones take longer.
type slowDeadlines struct {
	deaf
	mu   *sync.Mutex
	last *time.Time
}

func (s slowDeadlines) SetReadDeadline(t time.Time) error {
	time.Sleep(10*time.Second - time.Until(t)%time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.last = t
	return nil
}

// Of several deadlines of a transfer that is under way the last one counts.
func TestConn_LastDeadlineCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		d := slowDeadlines{deaf{release: make(chan struct{})}, new(sync.Mutex), new(time.Time)}
		conn := c.conn(d)
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = conn.Read(make([]byte, 1)) }()
		synctest.Wait()
		at := time.Now().Add(time.Hour)
		for i := range 5 {
			_ = conn.SetReadDeadline(at.Add(time.Duration(i) * 100 * time.Millisecond))
		}
		time.Sleep(time.Minute)
		d.mu.Lock()
		if want := at.Add(400 * time.Millisecond); !d.last.Equal(want) {
			t.Errorf("the deadline set last is %v, want %v", d.last, want)
		}
		d.mu.Unlock()
		_ = conn.Close()
		close(d.release)
		<-ended
		c.Wait(time.Minute)
	})
}
