//go:build unix

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// Several locks are acquired as a whole: while one is held elsewhere the others are free.
func TestLock_SeveralTogether(t *testing.T) {
	n := member(t, "")
	b := n.FencedLock("b")
	_, err := b.Lock(within(t))
	must0(t, err)
	p := start(t, "--addr", n.Addr(), "lock", "c", "a", "b", "--", "sh", "-c", `echo "held $CONCLAVE_LOCK=$CONCLAVE_FENCE of $CONCLAVE_FENCES"; exit 7`)
	awaitWaiters(t, b, 1)
	must(t, n, "lock", "c", "a", "--try", "--", "true")
	if out := must(t, n, "explain", "b"); !strings.Contains(out, "exclusive, set of 3") {
		t.Error(out)
	}
	must0(t, b.Unlock(within(t)))
	first, list, _ := strings.Cut(strings.TrimPrefix(p.line("held"), "held "), " of ")
	tokens, err := fencing.Parse([]string{list})
	must0(t, err)
	if len(tokens) != 3 || tokens[0].Lock != "a" || tokens[1].Lock != "b" || tokens[2].Lock != "c" {
		t.Fatalf("%v", tokens)
	}
	if c := tokens[2]; first != c.String() || c.Fence != tokens[1].Fence || c.Fence != tokens[0].Fence {
		t.Errorf("%s, want the one fence of %s", first, list)
	}
	if code := p.wait(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	for _, name := range []string{"a", "b", "c"} {
		_, err := n.FencedLock(name).TryLock(within(t))
		must0(t, err)
	}
}

// Commands with --shared hold several locks together, each with the fence of those that share it. The listings show the sets.
func TestLock_SeveralShared(t *testing.T) {
	n := member(t, "")
	reader := n.RWLock("b")
	fence, err := reader.RLock(within(t))
	must0(t, err)
	args := []string{"--addr", n.Addr(), "lock", "a", "b", "--shared", "--", "sh", "-c"}
	first := start(t, append(args, `echo "first $CONCLAVE_FENCES"; exec sleep 600`)...)
	_, list, _ := strings.Cut(first.line("first"), " ")
	tokens, err := fencing.Parse([]string{list})
	if err != nil || len(tokens) != 2 || tokens[0].Fence <= fence || tokens[1].Fence != fence {
		t.Errorf("%v, %v; want that of the reader, %v, for b", tokens, err, fence)
	}
	second := start(t, append(args, `echo "second $CONCLAVE_FENCES"`)...)
	if _, other, _ := strings.Cut(second.line("second"), " "); other != list {
		t.Errorf("fences %s and %s of commands that run together", other, list)
	}
	second.wait()
	want(t, conclaveAt(n, "lock", "b", "c", "--try", "--", "true"), 124, `"b" held shared by session`)
	if l := decoded[lockView](t, must(t, n, "locks", "a", "-o", "json")); l.Holders[0].Set != 2 {
		t.Errorf("%+v", l)
	}
	must0(t, reader.RUnlock(within(t)))
	if out := must(t, n, "explain", "b"); !strings.Contains(out, "set of 2") {
		t.Error(out)
	}
	if e := decoded[explanationView](t, must(t, n, "explain", "b", "-o", "json")); e.Holder.Set != 2 || e.Holder.Reserved {
		t.Errorf("%+v", e)
	}
	must(t, n, "release", "--session", decoded[lockView](t, must(t, n, "locks", "a", "-o", "json")).Session.String(), "--force")
	first.line("locks a=")
	if code := first.wait(); code != 123 {
		t.Errorf("exit code %d, want 123", code)
	}
}

// In a group that does not know sets, several locks are acquired in the order of their names.
func TestTenancy_OneByOne(t *testing.T) {
	n := member(t, "")
	must0(t, lockNow(t, n, "b"))
	s, err := n.NewSession(within(t), nil)
	must0(t, err)
	o := tenancy{try: true}
	_, err = o.oneByOne(within(t), s, []string{"a", "b", "c"})
	if !errors.Is(err, conclave.ErrLocked) {
		t.Error(err)
	}
	want(t, conclaveAt(n, "lock", "a", "--try", "--", "true"), 124, s.ID().String())
	must(t, n, "lock", "c", "--try", "--", "true")
	o.shared = true
	l, err := o.oneByOne(within(t), s, []string{"c", "d"})
	must0(t, err)
	if len(l.fences) != 2 || l.name != "d" || l.fence != l.fences[1].Fence || l.fence <= l.fences[0].Fence {
		t.Errorf("%+v", l)
	}
	must0(t, l.release(within(t)))
	must(t, n, "lock", "c", "d", "--try", "--", "true")
}

// None is acquired when one of the locks is not available.
func TestLock_SeveralNotAcquired(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	must0(t, lockNow(t, n, "b"))
	want(t, conclaveAt(n, "lock", "a", "b", "--try", "--", "true"), 124, "locked")
	want(t, conclaveAt(n, "lock", "a", "b", "--wait", "5s", "--", "true"), 124, `"b"`)
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
		grants = append(grants, grant{tokens: []fencing.Token{{Lock: name, Fence: 1}}, release: func(context.Context) error {
			released = append(released, name)
			return nil
		}})
	}
	must0(t, leaseOf("lock", s, grants...).release(within(t)))
	if got := strings.Join(released, " "); got != "c b a" {
		t.Error(got)
	}
}
