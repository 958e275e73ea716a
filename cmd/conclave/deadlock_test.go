//go:build unix

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// One by one, a command that would wait for a program which waits for the command's first lock ends with 124, and the program gets that
// lock. As a set the locks are not in its way.
func TestLock_RefuseDeadlock(t *testing.T) {
	n := member(t, "")
	program, command := newSession(t, n), newSession(t, n)
	_, err := program.FencedLock("b", conclave.WithLabel("transfer")).Lock(within(t))
	must0(t, err)
	_, err = command.FencedLock("a").Lock(within(t))
	must0(t, err)
	a, locked := n.FencedLock("a"), make(chan error, 1)
	go func() {
		_, err := program.FencedLock("a").Lock(within(t))
		locked <- err
	}()
	awaitWaiters(t, a, 1)
	o := tenancy{refuseDeadlock: true, label: "true"}
	_, err = o.oneByOne(within(t), command, []string{"b"})
	var coded codeError
	if err = notAcquired(within(t), within(t), err); !errors.As(err, &coded) || coded.code != exitNotAcquired || !strings.Contains(err.Error(), `waits for lock "b" of "transfer" under session `+program.ID().String()) {
		t.Error(err)
	}
	p := start(t, "--addr", n.Addr(), "lock", "a", "b", "--refuse-deadlock", "--", "echo", "runs")
	awaitWaiters(t, a, 2)
	must0(t, command.Close(within(t)))
	must0(t, <-locked)
	must0(t, program.Close(within(t)))
	p.line("runs")
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	want(t, conclaveAt(n, "lock", "c", "--refuse-deadlock", "--shared", "--", "true"), 0, "")
	want(t, conclaveAt(n, "lock", "c", "--refuse-deadlock", "--try", "--", "true"), 125, "--refuse-deadlock has no effect")
	want(t, conclaveAt(n, "lock", "c", "--refuse-deadlock", "--permits", "1", "--of", "1", "--", "true"), 125, "--refuse-deadlock has no effect")
}

func newSession(t *testing.T, n *conclave.Node) *conclave.Session {
	t.Helper()
	s, err := n.NewSession(within(t), &conclave.SessionConfig{TTL: time.Hour, LockDelay: conclave.NoLockDelay})
	must0(t, err)
	return s
}
