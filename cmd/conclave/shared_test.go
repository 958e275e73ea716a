//go:build unix

package main

import (
	"strings"
	"testing"
)

// Commands with --shared run together, under one fence. One without waits for all of them, and keeps later ones out.
func TestLock_Shared(t *testing.T) {
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
