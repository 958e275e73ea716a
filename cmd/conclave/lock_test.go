//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

func TestLock_PassesFenceAndExitCode(t *testing.T) {
	n := member(t, "")
	r := conclaveAt(n, "lock", "x", "--", "sh", "-c", `echo "$CONCLAVE_LOCK $CONCLAVE_FENCE"; cat; exit 7`)
	if fields := strings.Fields(r.out); r.code != 7 || r.err != "" || len(fields) < 2 || fields[0] != "x" || !strings.Contains(r.out, "from standard input") {
		t.Fatalf("%+v", r)
	}
	first, err := conclave.ParseFence(strings.Fields(r.out)[1])
	must0(t, err)
	second, err := n.FencedLock("x").TryLock(within(t)) // it is released
	must0(t, err)
	if second <= first {
		t.Errorf("fence %v after %v", second, first)
	}
}

func TestLock_ExitCodes(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	must0(t, lockNow(t, n, "held"))
	file := filepath.Join(t.TempDir(), "not-executable")
	must0(t, os.WriteFile(file, nil, 0o600))
	want(t, conclaveAt(n, "lock", "held", "--try", "--", "true"), 124, "locked")
	want(t, conclaveAt(n, "lock", "held", "--wait", "5s", "--", "true"), 124, "--wait is over: ")
	want(t, conclaveAt(n, "lock", "free", "--", "conclave-no-such-command"), 127, "not found")
	want(t, conclaveAt(n, "lock", "free", "--", file), 126, "permission denied")
	want(t, conclaveAt(n, "lock", "free", "--", "sh", "-c", "kill -9 $$"), 137, "")
	want(t, conclaveAt(n, "lock", "free", "--", "true"), 0, "")
	for l, err := range n.Locks(within(t), "") {
		must0(t, err)
		if l.Name != "held" || l.Waiters != 0 {
			t.Errorf("left behind: %+v", l)
		}
	}
}

// slowKill has startBy start a process that has ten seconds for a kill.
var slowKill = []string{"env", killTimeVariable + "=10s"}

// The next owner is granted the lock when the command of a lost lease is dead, also one that ignores SIGTERM.
func TestLock_LostCommandDiesBeforeNextGrant(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	p := startBy(t, slowKill, "--addr", n.Addr(), "lock", "x", "--grace", "1s", "--label", "stubborn", "--", "sh", "-c", `trap "" TERM; echo "pid $$"; while :; do sleep 0.05; done`)
	pid, err := strconv.Atoi(strings.Fields(p.line("pid"))[1])
	must0(t, err)
	want(t, conclaveAt(n, "release", "x"), 2, "--force does it")
	granted := make(chan error, 1)
	go func() {
		_, err := n.FencedLock("x").Lock(within(t))
		if err == nil && running(pid) {
			err = fmt.Errorf("granted while process %d of the last holder runs", pid)
		}
		granted <- err
	}()
	if out := must(t, n, "release", "x", "--force"); !strings.Contains(out, "client") {
		t.Error(out)
	}
	p.line("SIGTERM now, and SIGKILL in 1s")
	p.line("another owner may hold it now")
	if code := p.wait(); code != 123 {
		t.Errorf("exit code %d, want 123", code)
	}
	must0(t, <-granted)
	want(t, conclaveAt(n, "release", "y", "--force"), 4, "not held")
}

// Messages that no process reads, or a slow one, as a pager is, do not keep the command of a lost lease alive.
func TestLock_LostWithoutReader(t *testing.T) {
	for name, prepare := range map[string]func(r, w *os.File){"full pipe": fill, "broken pipe": func(r, _ *os.File) { _ = r.Close() }} {
		t.Run(name, func(t *testing.T) {
			n := member(t, "")
			r, w, err := os.Pipe()
			must0(t, err)
			defer r.Close()
			prepare(r, w)
			cmd := exec.Command(os.Args[0], "--addr", n.Addr(), "lock", "x", "--grace", "0s", "--", "sh", "-c", `(trap "" TERM; while :; do sleep 0.05; done) & echo $!; wait`)
			// It is less than messageGrace: to wait for the reader first would be too late.
			cmd.Env, cmd.Stderr = append(os.Environ(), runVariable+"=1", killTimeVariable+"=4s"), w
			out, err := cmd.StdoutPipe()
			must0(t, err)
			must0(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill() }()
			must0(t, w.Close())
			var pid int
			_, err = fmt.Fscan(out, &pid)
			must0(t, err)
			defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
			must(t, n, "release", "x", "--force")
			awaitEnd(t, pid)
			if _, err := n.FencedLock("x").TryLock(within(t)); !errors.Is(err, conclave.ErrLockDelay) {
				t.Errorf("a process of the last holder's command has outlived the lock-delay: %v", err)
			}
			_, _ = io.Copy(io.Discard, r)
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 123 {
				t.Errorf("%v, want exit code 123", cmd.ProcessState)
			}
		})
	}
}

// fill fills a pipe.
func fill(_, w *os.File) {
	fd := int(w.Fd())
	_ = syscall.SetNonblock(fd, true)
	for _, err := syscall.Write(fd, []byte("x\n")); err == nil; {
		_, err = syscall.Write(fd, []byte("x\n"))
	}
	_ = syscall.SetNonblock(fd, false)
}

func running(pid int) bool { return syscall.Kill(pid, 0) == nil && !zombie(pid) }

// awaitEnd blocks until a process has ended.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	for late := time.After(patience); running(pid); {
		select {
		case <-late:
			t.Fatalf("process %d runs on", pid)
		case <-time.After(10 * time.Millisecond): // nothing signals the end of a process that is no child
		}
	}
}

// At a terminal the command has no process group of its own. What it has started is killed after a loss all the same.
func TestLock_LostAtTerminal(t *testing.T) {
	t.Parallel()
	if descendants(os.Getppid()) == nil {
		t.Skip("only on Linux the descendants are known")
	}
	n := member(t, "")
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	cmd := exec.Command(os.Args[0], "--addr", n.Addr(), "lock", "x", "--grace", "0s", "--", "sh", "-c", `(trap "" TERM; while :; do sleep 0.05; done) & echo $!; wait`)
	cmd.Env, cmd.Stdin = append(os.Environ(), runVariable+"=1", killTimeVariable+"=10s"), terminal
	out, err := cmd.StdoutPipe()
	must0(t, err)
	must0(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	var pid int
	_, err = fmt.Fscan(out, &pid)
	must0(t, err)
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	must(t, n, "release", "x", "--force")
	must0(t, lockNow(t, n, "x"))
	if running(pid) {
		t.Error("granted while a process of the last holder's command runs")
	}
}

func TestLock_SignalReachesCommand(t *testing.T) {
	n := member(t, "")
	p := start(t, "--addr", n.Addr(), "lock", "x", "--", "sh", "-c", `trap "echo ending; exit 9" TERM; echo running; while :; do sleep 0.05; done`)
	p.line("running")
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.line("ending")
	if code := p.wait(); code != 9 {
		t.Errorf("exit code %d, want 9", code)
	}
	_, err := n.FencedLock("x").TryLock(within(t)) // it is released
	must0(t, err)
}

// nohup(1) has SIGHUP ignored, and a shell without job control SIGINT for background jobs. So it is for the command.
func TestLock_IgnoredSignalStaysIgnored(t *testing.T) {
	n := member(t, "")
	p := startBy(t, []string{"sh", "-c", `trap "" HUP INT; exec "$0" "$@"`},
		"--addr", n.Addr(), "lock", "x", "--", "sh", "-c", `echo running; while :; do sleep 0.05; done`)
	p.line("running")
	must0(t, p.cmd.Process.Signal(syscall.SIGHUP))
	must0(t, p.cmd.Process.Signal(syscall.SIGINT))
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM)) // Linux delivers the smaller numbers first
	if code := p.wait(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
}

func TestLock_SignalWhileWaiting(t *testing.T) {
	n := member(t, "")
	l := n.FencedLock("x")
	_, err := l.Lock(within(t))
	must0(t, err)
	p := start(t, "--addr", n.Addr(), "lock", "x", "--", "true")
	awaitWaiters(t, l, 1)
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.wait(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	awaitWaiters(t, l, 0)
}

func TestLock_SignalWhileDialing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // no member: it does not answer
	must0(t, err)
	defer l.Close()
	p := start(t, "--addr", l.Addr().String(), "lock", "x", "--", "true")
	c, err := l.Accept()
	must0(t, err)
	defer c.Close()
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.wait(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
}

// A signal that comes at the grant, when the command has not been started, keeps it from being started.
func TestLock_SignalAtGrant(t *testing.T) {
	n := member(t, "")
	var out, errs bytes.Buffer
	ctx, cancel := context.WithCancelCause(t.Context())
	p := &program{stdout: &out, stderr: &errs, signals: make(chan os.Signal, 16)}
	fence, err := n.FencedLock("x").Lock(within(t))
	must0(t, err)
	p.deliver(syscall.SIGUSR1, cancel)
	p.deliver(syscall.SIGTERM, cancel)
	released := false
	l := lease{kind: "lock", name: "x", fence: fence, held: func() bool { return true }, release: func(context.Context) error { released = true; return nil }}
	err = p.under(ctx, tenancy{}, l, []string{"echo", "runs"})
	if code := p.exit(new(cobra.Command), err); code != 143 || out.Len() > 0 || !released {
		t.Errorf("exit code %d, want 143; released: %v\n%s%s", code, released, &out, &errs)
	}
}

// A process that is stopped between the grant and the start of the command, for longer than its lease, does not start it.
func TestLock_LostAtGrant(t *testing.T) {
	var out, errs bytes.Buffer
	p := &program{stdout: &out, stderr: &errs}
	lost := make(chan struct{}) // closed later: the session reads the clock itself
	l := lease{kind: "lock", name: "x", held: func() bool { return false }, lost: lost, release: func(context.Context) error { return nil }}
	err := p.under(t.Context(), tenancy{}, l, []string{"echo", "runs"})
	if code := p.exit(new(cobra.Command), err); code != 123 || out.Len() > 0 {
		t.Errorf("exit code %d, want 123\n%s%s", code, &out, &errs)
	}
}

// The key that suspends a job reaches this process, but not a command with a process group of its own.
func TestLock_Suspended(t *testing.T) {
	t.Parallel()
	for ttl, code := range map[string]int{"10s": exitLost, "1h": 9} {
		t.Run("ttl "+ttl, func(t *testing.T) {
			t.Parallel()
			n := member(t, "")
			cmd := exec.Command(os.Args[0], "--addr", n.Addr(), "lock", "x", "--ttl", ttl, "--grace", "0s", "--",
				"sh", "-c", `trap "" TSTP; trap "exit 9" TERM; sleep 600 & echo $$; wait`)
			cmd.Env = append(os.Environ(), runVariable+"=1")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // or no process could resume it, so it would not stop
			out, err := cmd.StdoutPipe()
			must0(t, err)
			must0(t, cmd.Start())
			var pid int
			defer func() {
				_ = cmd.Process.Kill()
				_ = syscall.Kill(-pid, syscall.SIGKILL)
			}()
			_, err = fmt.Fscan(out, &pid)
			must0(t, err)
			must0(t, cmd.Process.Signal(syscall.SIGTSTP))
			var status syscall.WaitStatus
			for !status.Stopped() {
				if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); !errors.Is(err, syscall.EINTR) {
					must0(t, err)
				}
			}
			if code == exitLost {
				must0(t, lockNow(t, n, "x"))
			}
			awaitStopped(t, pid) // by a signal sent before: the only sender is stopped
			must0(t, cmd.Process.Signal(syscall.SIGCONT))
			if code == 9 {
				must0(t, cmd.Process.Signal(syscall.SIGTERM))
			}
			_ = cmd.Wait()
			if cmd.ProcessState.ExitCode() != code {
				t.Errorf("%v, want exit code %d", cmd.ProcessState, code)
			}
		})
	}
}

// awaitStopped blocks until a process is stopped. One that was runnable when SIGSTOP was sent executes no more of its program,
// but ps shows it as running until a processor is free to stop it.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	for ended := time.Now().Add(patience); state(t, pid) != "T"; <-time.After(10 * time.Millisecond) {
		if time.Now().After(ended) {
			t.Fatalf("the state of the command is %s, want T", state(t, pid))
		}
	}
}

// state is that of a process, T for one that is stopped.
func state(t *testing.T, pid int) string {
	t.Helper()
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	must0(t, err)
	return strings.TrimSpace(string(out))[:1]
}

func awaitWaiters(t *testing.T, l *conclave.FencedLock, n int) {
	t.Helper()
	ctx := within(t)
	for ; ; <-time.After(time.Millisecond) {
		info, err := l.Info(ctx)
		must0(t, err)
		if info.Waiters == n {
			return
		}
	}
}

// Without a command the lock is held until a signal comes.
func TestLock_WithoutCommand(t *testing.T) {
	n := member(t, "")
	p := start(t, "--addr", n.Addr(), "lock", "x")
	p.line("is held with fence")
	must0(t, p.cmd.Process.Signal(syscall.SIGINT))
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	_, err := n.FencedLock("x").TryLock(within(t))
	must0(t, err)
}

// A supervisor that is killed takes the command with it, or that would go on without the lock.
func TestLock_Killed(t *testing.T) {
	t.Parallel()
	if dies := new(syscall.SysProcAttr); !setsDeathSignal(dies) {
		t.Skip("only Linux sends a signal when a parent dies")
	}
	n := member(t, "")
	p := start(t, "--addr", n.Addr(), "lock", "x", "--ttl", "5s", "--grace", "0s", "--", "sh", "-c", `echo "pid $$"; exec sleep 600`)
	pid, err := strconv.Atoi(strings.Fields(p.line("pid"))[1])
	must0(t, err)
	must0(t, p.cmd.Process.Kill())
	must0(t, lockNow(t, n, "x")) // when the session has expired
	awaitEnd(t, pid)
}

// zombie reports whether a process has ended, and has a parent that does not ask.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func setsDeathSignal(a *syscall.SysProcAttr) bool {
	before := fmt.Sprint(*a)
	dieWithParent(a)
	return fmt.Sprint(*a) != before
}

func TestWatch(t *testing.T) {
	n := member(t, "")
	must(t, n, "kv", "put", "a/old", "v")
	index, err := n.KV().Index(within(t))
	must0(t, err)
	p := start(t, "--addr", n.Addr(), "watch", "a/", "--after", fmt.Sprint(index))
	must(t, n, "kv", "put", "b", "other")
	must(t, n, "kv", "put", "a/1", "one")
	must(t, n, "kv", "rm", "a/1")
	if l := p.line("put"); !strings.Contains(l, "put a/1 one") {
		t.Error(l)
	}
	p.line("deleted a/1")
	must0(t, p.cmd.Process.Signal(syscall.SIGINT))
	if code := p.wait(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
