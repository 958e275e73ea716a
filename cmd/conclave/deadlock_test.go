//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A command that would wait for a program which waits for the command's first lock ends with 124, and the program gets that lock.
func TestLock_RefuseDeadlock(t *testing.T) {
	n := member(t, "")
	s, err := n.NewSession(within(t), &conclave.SessionConfig{Name: "program", TTL: time.Hour})
	must0(t, err)
	_, err = s.FencedLock("b", conclave.WithLabel("transfer")).Lock(within(t))
	must0(t, err)
	a := n.FencedLock("a")
	_, err = a.Lock(within(t)) // so that the command and then the program wait for it
	must0(t, err)
	p := start(t, "--addr", n.Addr(), "lock", "a", "b", "--refuse-deadlock", "--", "true")
	awaitWaiters(t, a, 1)
	locked := make(chan error, 1)
	go func() {
		_, err := s.FencedLock("a").Lock(within(t))
		locked <- err
	}()
	awaitWaiters(t, a, 2)
	must0(t, a.Unlock(within(t)))
	out := p.line("would close a cycle")
	if !strings.Contains(out, `waits for lock "b" of "transfer" under session `+s.ID().String()) || !strings.Contains(out, `"true" under session`) {
		t.Error(out)
	}
	if code := p.wait(); code != exitNotAcquired {
		t.Errorf("exit code %d", code)
	}
	must0(t, <-locked)
	want(t, conclaveAt(n, "lock", "c", "--refuse-deadlock", "--shared", "--", "true"), 0, "")
	want(t, conclaveAt(n, "lock", "c", "--refuse-deadlock", "--try", "--", "true"), 125, "--refuse-deadlock has no effect")
	want(t, conclaveAt(n, "lock", "c", "--refuse-deadlock", "--permits", "1", "--of", "1", "--", "true"), 125, "--refuse-deadlock has no effect")
}
