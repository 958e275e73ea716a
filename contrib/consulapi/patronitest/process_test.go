//go:build unix

package patronitest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// programs are the paths of what the test runs.
type programs struct {
	conclave, patroni, postgres string // postgres: the folder of its programs
	python                      string
	uid, gid                    uint32 // of the servers: PostgreSQL refuses root
}

// find builds conclave, and finds the rest or skips the test.
func find(t *testing.T) programs {
	t.Helper()
	var p programs
	var err error
	// Debian's patroni is for Debian's python, which need not be the first in PATH.
	if p.patroni, err = exec.LookPath("/usr/bin/patroni"); err != nil {
		skip(t, "patroni")
	}
	if p.python, err = exec.LookPath("/usr/bin/python3"); err != nil || exec.Command(p.python, "-c", "import consul, psycopg2").Run() != nil {
		skip(t, "python3-consul")
	}
	folders, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	must(t, err)
	if len(folders) == 0 {
		skip(t, "postgresql")
	}
	p.postgres = folders[len(folders)-1]
	p.uid, p.gid = uint32(os.Geteuid()), uint32(os.Getegid())
	if p.uid == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Skip("SKIPPED: the test runs as root, and there is no account postgres")
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		must(t, errors.Join(errUID, errGID))
		p.uid, p.gid = uint32(uid), uint32(gid)
	}
	p.conclave = filepath.Join(t.TempDir(), "conclave")
	build := exec.Command("go", "build", "-o", p.conclave, ".")
	build.Dir = "../../../cmd/conclave"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return p
}

func skip(t *testing.T, name string) {
	t.Helper()
	t.Skipf("SKIPPED: %s is not installed: apt-get install patroni python3-consul python3-psycopg2 postgresql", name)
}

// process is a program that runs until the test ends, in a group of its own.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// start runs a program with its output in a file.
func start(t *testing.T, log string, cmd *exec.Cmd) *process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	must(t, cmd.Start())
	p := &process{cmd, make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// end sends a signal to the process and waits until it has ended.
func (p *process) end(s syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, s)
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGCONT)
	select {
	case <-p.done:
	case <-time.After(3 * time.Minute):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}

// ports returns free ports, below those that outgoing connections use. A UDP socket reserves each until the test ends, as
// package internal/testport does, since servers are started later, and again after a stop.
func ports(t *testing.T, n int) []int {
	t.Helper()
	var found []int
	for port := 21000 + os.Getpid()%5000; len(found) < n; port++ {
		if port > 31000 {
			t.Fatal("no free ports")
		}
		reservation, err := net.ListenPacket("udp", addr(port))
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = reservation.Close() })
		if l, err := net.Listen("tcp", addr(port)); err == nil {
			must(t, l.Close())
			found = append(found, port)
		}
	}
	return found
}

func addr(port int) string { return fmt.Sprint("127.0.0.1:", port) }

// eventually waits until a condition holds, which asks another process.
func eventually(t *testing.T, what string, patience time.Duration, holds func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !holds(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}
