//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"
)

// signalAgents sends a signal to agents.
func signalAgents(t *testing.T, s syscall.Signal, agents ...*operated) {
	t.Helper()
	for _, m := range agents {
		must0(t, m.cmd.Process.Signal(s))
	}
}

// waiters blocks until so many requests wait for a lock.
func (d *deployment) waiters(m *operated, lock string, n int) {
	d.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if decoded[explanationView](d.t, d.ask(m, "explain", lock, "-o", "json")).Waiters == n {
			return
		}
		<-time.After(50 * time.Millisecond) // the command does not wait
	}
	d.t.Fatalf("lock %q does not have %d waiters", lock, n)
}

// What waits for a lock, and what leads, survives an outage that is longer than its TTL with --timeout: it is granted the
// lock, or leads again, once the group has a quorum.
func TestLock_OutageOfGroup(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	addrs := all[0].addr + "," + all[1].addr + "," + all[2].addr
	first := d.holder(all[:]...)
	before := first.fence()
	waiter := start(t, "lock", "invoices", "--ttl", "3s", "--timeout", "3s", "--addr", addrs)
	d.waiters(all[0], "invoices", 1)
	leader := start(t, "elect", "boss", "--ttl", "3s", "--timeout", "3s", "--grace", "0s", "--addr", addrs, "--", "sh", "-c", "echo leading; exec sleep 600")
	leader.line("leading")
	limited := start(t, "lock", "invoices", "--ttl", "3s", "--timeout", "3s", "--wait", "8s", "--addr", addrs, "--", "true")
	d.waiters(all[0], "invoices", 2)

	signalAgents(t, syscall.SIGSTOP, all[1], all[2])
	t.Cleanup(func() { signalAgents(t, syscall.SIGCONT, all[1], all[2]) })
	waiter.line("trying again until the group answers")
	leader.line("campaigning again")
	leader.line("trying again until the group answers")
	if code := limited.wait(); code != exitNotAcquired {
		t.Errorf("--wait has passed: exit code %d, want %d\n%s", code, exitNotAcquired, limited.printed())
	}
	signalAgents(t, syscall.SIGCONT, all[1], all[2])

	must0(t, first.cmd.Process.Signal(syscall.SIGTERM))
	first.wait()
	if after := waiter.fence(); after <= before {
		t.Errorf("fence %v after %v", after, before)
	}
	leader.line("leading")
	must0(t, waiter.cmd.Process.Signal(syscall.SIGTERM))
	if code := waiter.wait(); code != 0 {
		t.Errorf("the waiter: exit code %d\n%s", code, waiter.printed())
	}
	must0(t, leader.cmd.Process.Signal(syscall.SIGTERM))
	if code := leader.wait(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("elect: exit code %d\n%s", code, leader.printed())
	}
}

// A signal ends the wait for a group without a quorum.
func TestLock_SignalInOutage(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	first := d.holder(all[:]...)
	first.fence()
	waiter := start(t, "lock", "invoices", "--ttl", "2s", "--timeout", "2s", "--addr", all[0].addr)
	d.waiters(all[0], "invoices", 1)
	signalAgents(t, syscall.SIGSTOP, all[1], all[2])
	t.Cleanup(func() { signalAgents(t, syscall.SIGCONT, all[1], all[2]) })
	waiter.line("trying again until the group answers")
	must0(t, waiter.cmd.Process.Signal(syscall.SIGTERM))
	if code := waiter.wait(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d\n%s", code, waiter.printed())
	}
}
