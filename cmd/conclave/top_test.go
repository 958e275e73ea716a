//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/conclave-go/conclave"
)

// The lock with the longest wait comes first, not that with the most waiters, nor the first name.
func TestTop_LongestWaitFirst(t *testing.T) {
	n := member(t, "")
	for _, name := range []string{"a", "b", "free"} {
		must0(t, lockNow(t, n, name))
	}
	wait := func(name string, waiters int) {
		for i := range waiters {
			go func() { _, _ = n.FencedLock(name, conclave.WithLabel("job")).Lock(t.Context()) }()
			awaitWaiters(t, n.FencedLock(name), i+1)
		}
	}
	wait("b", 1)
	waited := decoded[explanationView](t, must(t, n, "explain", "b", "-o", "json")).Queue[0].Since
	for ctx := within(t); *waited == 0; { // group time advances with the log
		_, err := n.KV().Put(ctx, "k", nil)
		must0(t, err)
		waited = decoded[explanationView](t, must(t, n, "explain", "b", "-o", "json")).Queue[0].Since
	}
	wait("a", 2)
	locks := decoded[[]contentionView](t, must(t, n, "top", "--once", "-o", "json"))
	if len(locks) != 2 || locks[0].Lock != "b" || locks[1].Lock != "a" || locks[1].Waiters != 2 || locks[0].Holder == nil || *locks[0].Longest <= *locks[1].Longest {
		t.Errorf("%+v", locks)
	}
	out := must(t, n, "top", "--once", "--limit", "1")
	if !strings.HasPrefix(out, "2 locks waited for\n\nLONGEST-WAIT") || strings.Count(out, "\n") != 4 || !strings.Contains(out, "member anna") {
		t.Error(out)
	}
	want(t, conclaveAt(n, "top"), 2, "no terminal: set --once")
	want(t, conclaveAt(n, "top", "--once", "--limit", "-1"), 2, "want 0, for all")
}

// An outage does not end status --watch, which shows it.
func TestStatus_Watch(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	p := start(t, "--addr", n.Addr(), "status", "-o", "json", "--watch", "20ms")
	for range 3 {
		if s := decoded[statusView](t, p.line("{")); s.Name != "anna" {
			t.Errorf("%+v", s)
		}
	}
	must0(t, n.Close(within(t)))
	if l := p.line(`"addresses"`); !strings.Contains(l, `"reason":"no member answers"`) {
		t.Error(l)
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGINT))
	if code := p.wait(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	want(t, conclaveAt(n, "status", "--watch", "soon"), 2, `unexpected argument "soon"`)
}

// A picture that cannot be read because of an outage leaves the one before; another error ends the command.
func TestRefresh_Errors(t *testing.T) {
	n := member(t, "")
	want(t, conclaveAt(n, "status", "--watch=1s", "--cert", "c.pem"), 2, "belong together")
	if !isOutage(conclave.ErrUnavailable) || isOutage(conclave.ErrInvalid) || !isOutage(withCode(exitUnavailable, conclave.ErrClosed)) {
		t.Error("outages are mistaken")
	}
}
