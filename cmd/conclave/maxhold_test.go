//go:build unix

package main

import (
	"strings"
	"testing"
)

// A command whose time is over gets SIGTERM, though its session lives; the listings show the time left, and the next one is granted the
// lock.
func TestLock_MaxHold(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	args := []string{"--addr", n.Addr(), "lock", "x", "--grace", "0s", "--max-hold"}
	first := start(t, append(args, "1h", "--", "sh", "-c", `echo "first $CONCLAVE_FENCE"; exec sleep 600`)...)
	first.line("first")
	if out := must(t, n, "explain", "x"); !strings.Contains(out, "at the latest, by its MaxHold") {
		t.Error(out)
	}
	if e := decoded[explanationView](t, must(t, n, "explain", "x", "-o", "json")); e.Holder.EndsIn <= 0 || e.Holder.EndsIn > 3600 {
		t.Errorf("%+v", e)
	}
	if l := decoded[lockView](t, must(t, n, "locks", "-o", "json")); l.EndsIn <= 0 || l.EndsIn > 3600 {
		t.Errorf("%+v", l)
	}
	must(t, n, "release", "x", "--force")
	first.line("the lease is lost")
	first.wait()
	second := start(t, append(args, "5s", "--", "sh", "-c", `echo "second $CONCLAVE_FENCE"; exec sleep 600`)...)
	second.line("second")
	_, err := n.FencedLock("x").Lock(within(t))
	must0(t, err)
	second.line("it reached --max-hold 5s")
	if code := second.wait(); code != exitLost {
		t.Errorf("exit code %d", code)
	}
	want(t, conclaveAt(n, "lock", "pool", "--permits", "1", "--of", "2", "--grace", "0s", "--max-hold", "5s", "--", "sleep", "600"), exitLost, "--max-hold")
	want(t, conclaveAt(n, "lock", "y", "--max-hold", "25h", "--", "true"), 125, "want 0 (none) or 1ms to 24h")
}
