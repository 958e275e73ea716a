//go:build unix

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// Commands with --shared run together, under one fence. One without waits for all of them, and keeps later ones out.
func TestLock_Shared(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	args := []string{"--addr", n.Addr(), "lock", "prices", "--shared", "--", "sh", "-c"}
	first := start(t, append(args, `echo "first $CONCLAVE_FENCE"; exec sleep 600`)...)
	_, one, _ := strings.Cut(first.line("first"), " ")
	second := start(t, append(args, `echo "second $CONCLAVE_FENCE"; exit 0`)...)
	if _, two, _ := strings.Cut(second.line("second"), " "); two != one {
		t.Errorf("fences %s and %s of commands that run together", one, two)
	}
	if code := second.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	want(t, conclaveAt(n, "lock", "prices", "--try", "--", "true"), 124, "held shared by session")
	writer := start(t, "--addr", n.Addr(), "lock", "prices", "--", "sh", "-c", `echo "writer $CONCLAVE_FENCE"`)
	awaitWaiters(t, n.FencedLock("prices"), 1)
	want(t, conclaveAt(n, "lock", "prices", "--shared", "--try", "--", "true"), 124, "requested exclusively")
	info, err := n.FencedLock("prices").Info(within(t))
	must0(t, err)
	if info.Shared != 1 || info.Holders[0].Label != "sh" {
		t.Errorf("%+v", info)
	}
	must(t, n, "release", "--session", info.Session.String(), "--force")
	first.line("the lease is lost")
	writer.line("writer")
	if code := writer.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	want(t, conclaveAt(n, "lock", "pool", "--shared", "--permits", "1", "--of", "2", "--", "true"), 125, "permits shared")
}

// The listings show that a lock is shared, by how many and by which ones, and the mode that each waiter asks for.
func TestListings_Shared(t *testing.T) {
	n := member(t, "")
	for _, label := range []string{"one", "two\x1b[31m"} {
		_, err := n.RWLock("prices", conclave.WithLabel(label)).RLock(within(t))
		must0(t, err)
	}
	waiting, withdraw := context.WithCancel(within(t))
	defer withdraw()
	for i, lock := range []func(context.Context) (conclave.Fence, error){n.RWLock("prices").Lock, n.RWLock("prices").RLock} {
		go func() { _, _ = lock(waiting) }()
		awaitWaiters(t, n.FencedLock("prices"), i+1)
	}
	out := must(t, n, "locks")
	if !strings.Contains(out, "anna and 1 more (shared)") {
		t.Error(out)
	}
	if l := decoded[lockView](t, must(t, n, "locks", "-o", "json")); l.Shared != 2 || len(l.Holders) != 2 || l.Holders[0].Label != "one" || l.Holders[0].NodeName != "anna" || l.Holders[0].Holds != 1 {
		t.Errorf("%+v", l)
	}
	if out := must(t, n, "top", "--once"); !strings.Contains(out, "member anna and 1 more (shared)") {
		t.Error(out)
	}
	out = must(t, n, "explain", "prices")
	if !strings.Contains(out, "held shared by 2 holders, with fence ") || strings.Count(out, "member anna") != 4 || strings.Count(out, "\x1b") != 0 {
		t.Error(out)
	}
	if _, queue, _ := strings.Cut(out, "WAITER"); strings.Index(queue, "exclusive") > strings.Index(queue, "shared") || !strings.Contains(queue, "exclusive") {
		t.Error(out)
	}
	want(t, conclaveAt(n, "release", "prices", "--force"), exitRefused, "is shared by 2 holders")
	e := decoded[explanationView](t, must(t, n, "explain", "prices", "-o", "json"))
	if e.Shared != 2 || len(e.Holders) != 2 || !e.Holders[1].Shared || e.Holders[1].Label != "two\x1b[31m" || e.Queue[0].Shared || !e.Queue[1].Shared {
		t.Errorf("%+v", e)
	}
}

// A lock that is held shared shows the lock-delay of another one that has shared it, for which exclusive requests wait.
func TestListings_SharedInLockDelay(t *testing.T) {
	n := member(t, "")
	lost, err := n.NewSession(within(t), &conclave.SessionConfig{LockDelay: time.Minute})
	must0(t, err)
	for _, l := range []*conclave.RWLock{n.RWLock("prices"), lost.RWLock("prices")} {
		_, err := l.RLock(within(t))
		must0(t, err)
	}
	for _, args := range [][]string{{"locks"}, {"explain", "prices"}} {
		if out := must(t, n, args...); strings.Contains(out, "lock-delay") {
			t.Error(out)
		}
	}
	must0(t, n.CloseSession(within(t), lost.ID()))
	if out := must(t, n, "explain", "prices"); !strings.Contains(out, "held shared by 1 holder, with fence ") || !strings.Contains(out, "lock-delay:  of others that have shared it") {
		t.Error(out)
	}
	if out := must(t, n, "locks"); !strings.Contains(out, "anna (shared), lock-delay ") {
		t.Error(out)
	}
}
