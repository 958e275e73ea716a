package transport

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// journal is a log that tests read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) count(s string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.buf.String(), s)
}

// A fault that repeats itself is logged once on either side, and again when it
// has become another.
func TestFaultsAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var here, there journal
		logTo := func(j *journal) func(*Config) {
			return func(c *Config) { c.Dial, c.Logger = n.dial, slog.New(slog.NewTextHandler(j, nil)) }
		}
		a := start(t, identity(1), n.listen("a"), logTo(&here))
		b := start(t, identity(2), n.listen("b"), logTo(&there))
		a.SetPeer(2, "b") // who does not know member 1 yet
		time.Sleep(time.Minute)
		if n.dials("b") < 10 || here.count("connection refused") != 1 || there.count("inbound connection refused") != 1 {
			t.Errorf("after %d dials:\n%s\n%s", n.dials("b"), here.buf.String(), there.buf.String())
		}
		b.SetPeer(1, "a")
		time.Sleep(time.Minute)
		b.Close()
		time.Sleep(time.Minute)
		if here.count("msg=connected") != 1 || here.count(`msg="not connected"`) != 1 || here.count(`msg="connection from peer lost"`) != 1 {
			t.Errorf("the log says:\n%s", here.buf.String())
		}
	})
}

// Accepting goes on after a failure that passes, such as too many open files.
func TestAcceptFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var j journal
		start(t, identity(1), &flakyListener{memListener: n.listen("a"), failures: 5}, func(c *Config) {
			c.Logger = slog.New(slog.NewTextHandler(&j, nil))
		})
		c, err := n.dial(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if got := j.count(syscall.EMFILE.Error()); got != 5 {
			t.Errorf("%d failures were logged", got)
		}
	})
}

type flakyListener struct {
	*memListener
	failures int
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, syscall.EMFILE
	}
	return l.memListener.Accept()
}

// A listener that somebody else closes is noticed, and said.
func TestListenerClosedFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var j journal
		ln := n.listen("a")
		start(t, identity(1), ln, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&j, nil)) })
		ln.Close()
		synctest.Wait()
		if j.count("closed from outside") != 1 {
			t.Errorf("the log says %q", j.buf.String())
		}
	})
}
