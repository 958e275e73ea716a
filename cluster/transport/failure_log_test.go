package transport

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// journal is a log for tests to search.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

func (j *journal) count(s string) int {
	return strings.Count(j.String(), s)
}

// logTo starts a node on n that logs to j.
func logTo(t *testing.T, n *memNet, j *journal, member uint64, addr string) *node {
	t.Helper()
	return start(t, identity(member), n.listen(addr), func(c *Config) { c.Dial, c.Logger = n.dial, j.logger() })
}

// A repeated refusal is logged once a minute on either side; changes of the
// connection's state are logged once each.
func TestFailureLog_OneLineAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var dialer, listener journal
		a := logTo(t, n, &dialer, 1, "a")
		b := logTo(t, n, &listener, 2, "b")
		a.SetPeer(m(2), "b") // which does not accept member 1 yet
		for minutes := range 3 {
			time.Sleep(time.Minute)
			if n.dials("b") < 10*(minutes+1) ||
				dialer.count(`level=WARN msg="connection refused"`) != minutes+1 ||
				listener.count(`level=WARN msg="inbound connection refused"`) != minutes+1 {
				t.Fatalf("after %d minutes and %d dials:\n%v\n%v", minutes+1, n.dials("b"), &dialer, &listener)
			}
		}
		for _, want := range []string{` addr=b `, ` reason="not a member" `, ` error="refused by member ` + text(2) + ` at b: `, ` member=` + text(2)} {
			if dialer.count(want) != 3 {
				t.Errorf("the log does not contain %q three times:\n%v", want, &dialer)
			}
		}
		b.SetPeer(m(1), "a")
		time.Sleep(time.Minute)
		b.Close()
		time.Sleep(time.Minute)
		if dialer.count(`msg="peer connected"`) != 1 || dialer.count(`msg="peer not connected"`) != 1 || dialer.count(`msg="inbound connection lost"`) != 1 {
			t.Errorf("the log is:\n%v", &dialer)
		}
	})
}

// A peer that is refused a hundred times a second costs one line in 5 s, also at Debug.
func TestFailureLog_RepetitionsEvery5s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := newFailureLog(slog.New(slog.NewTextHandler(&j, &slog.HandlerOptions{Level: slog.LevelDebug})))
		for range 100 * 20 {
			l.inbound(memAddr("a"), &RefusedError{Member: m(2), Reason: ReasonClone})
			l.outbound(t.Context(), Target{Addr: "b", Member: m(2)}, &ConnectError{Err: ErrNotConnected})
			time.Sleep(10 * time.Millisecond)
		}
		if got := j.count("level="); got != 8 || j.count("level=WARN") != 1 {
			t.Errorf("%d lines in 20 s, want 8, one of them a warning:\n%v", got, &j)
		}
	})
}

// Members of a new group refuse each other until all have learned of it. Only
// what lasts is logged.
func TestFailureLog_TemporaryRefusalNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var j journal
		a := logTo(t, n, &j, 1, "a")
		b := logTo(t, n, &j, 2, "b")
		a.SetPeer(m(2), "b")
		time.Sleep(failureGrace / 2)
		b.SetPeer(m(1), "a")
		time.Sleep(time.Minute)
		if n.dials("b") < 3 || j.count("refused") != 0 {
			t.Errorf("after %d dials:\n%v", n.dials("b"), &j)
		}
	})
}

// A member that leaves is refused until it has stopped. It is logged if it does not stop.
func TestFailureLog_RemovedMemberThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFailureLog(slog.New(slog.DiscardHandler))
		refused := failure{"connection refused", "a", string(ReasonRemoved)}
		if level, due := l.due(refused); !due || level != slog.LevelDebug {
			t.Errorf("at first: logged %t at %v, want DEBUG", due, level)
		}
		time.Sleep(failureGrace)
		if level, due := l.due(refused); !due || level != slog.LevelWarn {
			t.Errorf("after %v: logged %t at %v, want WARN", failureGrace, due, level)
		}
	})
}

// An unreachable peer is logged once, from the first attempt on.
func TestFailureLog_UnreachablePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		var j journal
		a := logTo(t, n, &j, 1, "a")
		a.SetPeer(m(2), "unreachable")
		time.Sleep(time.Hour)
		if j.count("level=INFO") != 1 || j.count("level=") != 1 || j.count(`msg="peer not connected" member=`+text(2)+` addr=unreachable error=`) != 1 {
			t.Errorf("after an hour:\n%v", &j)
		}
	})
}

// Addresses come from outside, so neither memory nor lines per minute grow with
// their number.
func TestFailureLog_Bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := newFailureLog(j.logger())
		flood := func() {
			for i := range 4 * maxFailures {
				l.outbound(t.Context(), Target{Addr: fmt.Sprint(i)}, &ConnectError{Handshake: true, Err: ErrNotConclave})
			}
		}
		for minute := 1; minute <= 3; minute++ {
			flood()
			flood()
			if len(l.seen) > maxFailures || j.count("msg=") != minute*maxFailures {
				t.Fatalf("%d entries, %d lines after %d minutes", len(l.seen), j.count("msg="), minute)
			}
			time.Sleep(failureInterval)
		}
	})
}
