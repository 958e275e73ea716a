//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// The procedures of docs/OPERATIONS.md, with the commands that stand there.

// A machine is lost. A new one with an empty directory joins and votes in its place.
func TestOperations_ReplaceMachine(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	d.healthy(all[0], 3, 0)
	d.ask(all[0], "config", "--replace-after", "5s")
	lost := all[2]
	lost.kill()
	must0(t, os.RemoveAll(lost.dir))
	began := time.Now()
	replacement := d.start("clara")
	d.opened(replacement)
	d.await(all[0], "the replacement as a voter", func(s statusView) bool {
		return s.role(replacement.id) == "voter" && s.role(lost.id) == "standby" && s.Redundancy == 1
	})
	t.Logf("full redundancy again after %v", time.Since(began).Round(time.Millisecond))
	d.ask(all[0], "remove", lost.id.String())
	d.healthy(all[0], 3, 0)
	d.healthy(replacement, 3, 0)
	all[0].kill() // the group survives the loss of another one
	d.await(replacement, "a leader", func(s statusView) bool { return s.Leader != all[0].id && s.Leader != 0 })
	d.ask(replacement, "config")
}

// Three members become five, and three again.
func TestOperations_Scale(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	fourth, fifth := d.start("dora"), d.start("emil")
	d.opened(fourth)
	d.opened(fifth)
	d.healthy(all[0], 3, 2)
	d.ask(all[0], "config", "--voters", "5")
	d.healthy(all[0], 5, 0)
	d.ask(all[0], "config", "--voters", "3")
	d.healthy(all[0], 3, 2)
	for _, m := range []*operated{fourth, fifth} {
		d.operate("leave", "--http", m.web, "--console-password-file", d.password)
		if code := m.wait(); code != 0 {
			t.Errorf("%s: exit code %d after it left, want 0", m.name, code)
		}
	}
	d.healthy(all[0], 3, 0)
	for _, m := range all {
		if text := m.printed(); strings.Contains(text, "quorum lost") || strings.Contains(text, "member stopped") {
			t.Errorf("%s warns, and nothing has failed:\n%s", m.name, text)
		}
	}
	again := d.start("emil")
	if code := again.wait(); code != exitRemoved {
		t.Errorf("the removed member: exit code %d, want %d", code, exitRemoved)
	}
}

// All members of a Deployment are replaced, one after the other: the new process joins, is ready, and then the old one
// gets SIGTERM and leaves. A client keeps its lock meanwhile, and another one its position in the queue.
func TestOperations_DeploymentRollout(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	args := []string{"--memory", "--leave", "--expect", "3"}
	all := d.found(args...)
	d.healthy(all[0], 3, 0)
	holder := d.holder(all[:]...)
	first := holder.fence()
	waiter := d.holder(all[:]...)
	for round := range 3 {
		old := all[round]
		began := time.Now()
		all[round] = d.start("round "+string(rune('1'+round)), args...)
		d.ready(all[round])
		joined := time.Since(began)
		must0(t, old.cmd.Process.Signal(syscall.SIGTERM))
		old.line(`msg="left the group"`)
		if code := old.wait(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		t.Logf("round %d: ready after %v, the old one ended after %v", round+1, joined.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		d.any = all[round].addr
		d.healthy(all[round], 3, 0)
	}
	must0(t, holder.cmd.Process.Signal(syscall.SIGTERM))
	if code := holder.wait(); code != 128+int(syscall.SIGTERM) && code != 0 {
		t.Errorf("the holder: exit code %d\n%s", code, holder.printed())
	}
	if second := waiter.fence(); second <= first {
		t.Errorf("fence %v after %v", second, first)
	}
}

// A group is restored from a backup, with larger fences, and grows to three voters.
func TestOperations_BackupAndRestore(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	old := d.holder(all[:]...).fence()
	file := filepath.Join(d.dir, "group.backup")
	d.ask(all[1], "backup", file)
	for _, m := range all {
		m.kill()
	}
	restored := filepath.Join(d.dir, "restored")
	d.succeed(restored, old, "restore", file, "--dir", restored)
}

// succeed makes a new group of a directory with a command, of three voters in the end, whose fences are of the next epoch.
func (d *deployment) succeed(dir string, old conclave.Fence, args ...string) {
	d.t.Helper()
	if out := d.operate(args...); !strings.Contains(out, "no member has started on it yet") {
		d.t.Errorf("conclave %s: the directory is no seed:\n%s", strings.Join(args, " "), out)
	}
	d.any = ""
	first := d.start(filepath.Base(dir))
	d.opened(first)
	if f := d.holder(first).fence(); f <= old || !strings.HasPrefix(f.String(), "1:") {
		d.t.Errorf("the new group's fence is %v, after %v", f, old)
	}
	for _, name := range []string{"new ben", "new clara"} {
		d.opened(d.start(name))
	}
	d.healthy(first, 3, 0)
}

// Two of three machines are lost. The last one is recovered, and gets two new ones.
func TestOperations_LostMajority(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found()
	d.healthy(all[0], 3, 0)
	old := d.holder(all[:]...).fence()
	for _, m := range all[1:] {
		m.kill()
		must0(t, os.RemoveAll(m.dir))
	}
	alone := func(command string) []string {
		return []string{command, "-o", "json", "--http", all[0].web, "--console-password-file", d.password}
	}
	d.awaitBy("no quorum", func(s statusView) bool { return s.Redundancy < 0 && s.Leader == 0 }, alone("status")...)
	if members := d.operate(alone("members")...); strings.Count(members, `"alive":false`) != 2 || strings.Count(members, "\n") != 3 {
		t.Error(members)
	}
	for path, want := range map[string]int{"/readyz": 503, "/livez": 200, "/console/": 200} {
		if status, text := get(t, "http://"+all[0].web+path, "operator", testPassword); status != want {
			t.Errorf("without a quorum: %s %d, want %d:\n%s", path, status, want, text)
		}
	}
	must0(t, all[0].cmd.Process.Signal(syscall.SIGTERM))
	if code := all[0].wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	d.operate("verify", all[0].dir)
	d.succeed(all[0].dir, old, "recover", "--dir", all[0].dir)
}
