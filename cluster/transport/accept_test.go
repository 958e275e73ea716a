package transport

import (
	"net"
	"syscall"
	"testing"
	"testing/synctest"
)

// The listener is retried after a temporary failure such as too many open files.
func TestAccept_TemporaryFailureRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var j journal
		start(t, identity(1), &flakyListener{memListener: n.listen("a"), failures: 5}, func(c *Config) {
			c.Logger = j.logger()
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

func TestAccept_ListenerClosedByAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var j journal
		ln := n.listen("a")
		start(t, identity(1), ln, func(c *Config) { c.Logger = j.logger() })
		ln.Close()
		synctest.Wait()
		if j.count("closed by another owner") != 1 {
			t.Errorf("the log is:\n%v", &j)
		}
	})
}
