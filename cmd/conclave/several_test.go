//go:build unix

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/fencing"
)

// Several locks are acquired in the order of their names, whatever the order on the command line.
func TestLock_SeveralSorted(t *testing.T) {
	n := member(t, "")
	b := n.FencedLock("b")
	_, err := b.Lock(within(t))
	must0(t, err)
	p := start(t, "--addr", n.Addr(), "lock", "c", "a", "b", "--", "sh", "-c", `echo "held $CONCLAVE_LOCK=$CONCLAVE_FENCE of $CONCLAVE_FENCES"; exit 7`)
	awaitWaiters(t, b, 1)
	want(t, conclaveAt(n, "lock", "a", "--try", "--", "true"), 124, "locked")
	must(t, n, "lock", "c", "--try", "--", "true") // its turn is after b's
	must0(t, b.Unlock(within(t)))
	first, list, _ := strings.Cut(strings.TrimPrefix(p.line("held"), "held "), " of ")
	tokens, err := fencing.Parse([]string{list})
	must0(t, err)
	if len(tokens) != 3 || tokens[0].Lock != "a" || tokens[1].Lock != "b" || tokens[2].Lock != "c" {
		t.Fatalf("%v", tokens)
	}
	if c := tokens[2]; first != c.String() || c.Fence <= tokens[1].Fence || c.Fence <= tokens[0].Fence {
		t.Errorf("%s, want the largest fence of %s", first, list)
	}
	if code := p.wait(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	for _, name := range []string{"a", "b", "c"} {
		_, err := n.FencedLock(name).TryLock(within(t))
		must0(t, err)
	}
}

// What was acquired is released when another of the locks is not.
func TestLock_SeveralNotAcquired(t *testing.T) {
	n := member(t, "")
	must0(t, lockNow(t, n, "b"))
	want(t, conclaveAt(n, "lock", "a", "b", "--try", "--", "true"), 124, "locked")
	want(t, conclaveAt(n, "lock", "a", "b", "--wait", "50ms", "--", "true"), 124, `"b"`)
	_, err := n.FencedLock("a").TryLock(within(t))
	must0(t, err)
	want(t, conclaveAt(n, "lock", "x", "y", "x", "--", "true"), 125, `"x" is named twice`)
	want(t, conclaveAt(n, append(strings.Fields("lock 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"), "--", "true")...), 125, `unexpected argument "17"`)
	want(t, conclaveAt(n, "lock", "x", "y", "--permits", "1", "--of", "2", "--", "true"), 125, "want one semaphore")
	want(t, conclaveAt(n, "elect", "x", "y", "--", "true"), 125, `unexpected argument "y"`)
	want(t, conclaveAt(n, "lock", "x", "y"), 125, "put -- before")
	want(t, conclaveAt(n, "lock", "x", "y", "--"), 125, "missing the command")
}

func TestLock_SeveralLost(t *testing.T) {
	n := member(t, "")
	p := start(t, "--addr", n.Addr(), "lock", "a", "b", "--grace", "0s", "--", "sh", "-c", `echo running; exec sleep 600`)
	p.line("running")
	must(t, n, "release", "b", "--force")
	p.line("locks a=")
	if code := p.wait(); code != 123 {
		t.Errorf("exit code %d, want 123", code)
	}
	must0(t, lockNow(t, n, "a"))
	must0(t, lockNow(t, n, "b"))
}

// The first of several locks is released last.
func TestLease_ReleasesInReverseOrder(t *testing.T) {
	n := member(t, "")
	s, err := n.NewSession(within(t), nil)
	must0(t, err)
	var released []string
	var grants []grant
	for _, name := range []string{"a", "b", "c"} {
		grants = append(grants, grant{token: fencing.Token{Lock: name, Fence: 1}, release: func(context.Context) error {
			released = append(released, name)
			return nil
		}})
	}
	must0(t, leaseOf("lock", s, grants...).release(within(t)))
	if got := strings.Join(released, " "); got != "c b a" {
		t.Error(got)
	}
}
