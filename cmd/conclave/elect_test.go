//go:build unix

package main

import (
	"syscall"
	"testing"
)

func TestElect_CampaignsAgain(t *testing.T) {
	n := member(t, "")
	p := start(t, "--addr", n.Addr(), "elect", "boss", "--value", "here", "--grace", "0s", "--", "sh", "-c", `echo "leading $CONCLAVE_FENCE"; exec sleep 600`)
	first := p.line("leading")
	leader, err := n.Election("boss").Leader(within(t))
	must0(t, err)
	if string(leader.Value) != "here" {
		t.Errorf("%+v", leader)
	}
	must(t, n, "release", "--session", leader.Session.String(), "--force")
	p.line("campaigning again")
	if second := p.line("leading"); second == first {
		t.Errorf("%s again", second)
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.wait(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	want(t, conclaveAt(n, "elect", "boss", "--once", "--", "sh", "-c", "exit 5"), 5, "")
}

// SIGHUP asks many commands to reload their configuration, not to end.
func TestElect_CampaignsAgainAfterReload(t *testing.T) {
	n := member(t, "")
	p := start(t, "--addr", n.Addr(), "elect", "boss", "--grace", "0s", "--", "sh", "-c", `trap "echo reloaded" HUP; echo leading; while :; do sleep 0.05; done`)
	p.line("leading")
	must0(t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.line("reloaded")
	leader, err := n.Election("boss").Leader(within(t))
	must0(t, err)
	must(t, n, "release", "--session", leader.Session.String(), "--force")
	p.line("campaigning again")
	p.line("leading")
}
