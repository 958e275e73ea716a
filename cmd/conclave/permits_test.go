//go:build unix

package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// Two of two permits are in use, so a third command waits until one of them ends.
func TestLock_Permits(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	pool := n.Semaphore("pool", 2)
	args := []string{"--addr", n.Addr(), "lock", "pool", "--permits", "1", "--of", "2", "--", "sh", "-c"}
	first := start(t, append(args, `echo "first $CONCLAVE_FENCE $CONCLAVE_SLOTS"; exec sleep 600`)...)
	fence := first.line("first")
	second := start(t, append(args, `echo "second $CONCLAVE_LOCK $CONCLAVE_FENCES $CONCLAVE_SLOTS"; exec sleep 600`)...)
	if l := second.line("second"); !strings.HasPrefix(l, "second pool pool=") || !strings.HasSuffix(fence, " 0") || !strings.HasSuffix(l, " 1") {
		t.Error(fence, l)
	}
	want(t, conclaveAt(n, "lock", "pool", "--permits", "1", "--of", "2", "--try", "--", "true"), 124, "not enough permits")
	want(t, conclaveAt(n, "lock", "pool", "--permits", "1", "--of", "2", "--wait", "5s", "--", "true"), 124, "queued at position 1")
	want(t, conclaveAt(n, "lock", "pool", "--permits", "1", "--of", "3", "--", "true"), 125, "another limit: 2: set --of to that one")
	third := start(t, append(args, `echo "third $CONCLAVE_FENCE"; exit 7`)...)
	for ctx := within(t); ; <-time.After(time.Millisecond) {
		info, err := pool.Info(ctx)
		must0(t, err)
		if info.Waiters == 1 {
			break
		}
	}
	must0(t, first.cmd.Process.Signal(syscall.SIGTERM))
	if code := first.wait(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	earlier, err := strconv.ParseUint(strings.Fields(fence)[1], 10, 64)
	must0(t, err)
	later, err := strconv.ParseUint(strings.Fields(third.line("third"))[1], 10, 64)
	must0(t, err)
	if code := third.wait(); code != 7 || later <= earlier {
		t.Errorf("exit code %d, want 7; fence %d after %d", code, later, earlier)
	}
	_, err = n.Semaphore("pool", 2).TryAcquire(within(t), 1) // it is released
	must0(t, err)
}

// The command of permits that are lost with their session dies before the next grant.
func TestLock_PermitsLost(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	p := startBy(t, slowKill, "--addr", n.Addr(), "lock", "pool", "--permits", "2", "--of", "2", "--grace", "1s", "--",
		"sh", "-c", `trap "" TERM; echo "pid $$"; while :; do sleep 0.05; done`)
	pid, err := strconv.Atoi(strings.Fields(p.line("pid"))[1])
	must0(t, err)
	info, err := n.Semaphore("pool", 2).Info(within(t))
	must0(t, err)
	granted := make(chan error, 1)
	go func() {
		_, err := n.Semaphore("pool", 2).Acquire(within(t), 1)
		if err == nil && running(pid) {
			err = fmt.Errorf("granted while process %d of the last holder runs", pid)
		}
		granted <- err
	}()
	must(t, n, "release", "--session", info.Holders[0].Session.String(), "--force")
	p.line("SIGTERM now, and SIGKILL in 1s")
	p.line(`semaphore "pool" with fence ` + conclave.Fence(info.Holders[0].Fence).String())
	if code := p.wait(); code != 123 {
		t.Errorf("exit code %d, want 123", code)
	}
	must0(t, <-granted)
}

func TestLock_PermitsUsage(t *testing.T) {
	n := member(t, "")
	for args, contains := range map[string]string{
		"--permits 1":                    "missing [of]",
		"--of 3":                         "missing [permits]",
		"--permits 0 --of 3":             "--permits: want 1 to 3",
		"--permits 4 --of 3":             "--permits: want 1 to 3",
		"--permits 1 --of 0":             "--of: want 1 to",
		"--permits 1 --of 3 --label job": "no effect",
	} {
		want(t, conclaveAt(n, append(append([]string{"lock", "pool"}, strings.Fields(args)...), "--", "true")...), 125, contains)
	}
}
