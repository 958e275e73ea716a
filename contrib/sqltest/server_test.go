//go:build unix

package sqltest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	patience = 5 * time.Minute // for one step of a server
	lifetime = "1800"          // seconds, after which a server ends whatever becomes of the test
)

// binary returns the path of a server's program, or skips the test.
func binary(t *testing.T, names ...string) string {
	t.Helper()
	var folders []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/sbin", "/usr/local/sbin"} { // not in each PATH
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		folders = append(folders, found...)
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		for _, folder := range folders {
			if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
				return path
			}
		}
	}
	t.Skipf("SKIPPED: %s is not installed: apt-get install postgresql mariadb-server", names[0])
	return ""
}

// account is whose processes a server's are.
type account struct{ uid, gid int }

// unprivileged returns the account of that name if the test runs as root, as servers refuse root, and
// the test's own otherwise.
func unprivileged(t *testing.T, name string) account {
	t.Helper()
	if os.Geteuid() != 0 {
		return account{os.Geteuid(), os.Getegid()}
	}
	u, err := user.Lookup(name)
	if err != nil {
		t.Skipf("SKIPPED: the test runs as root, and the server's account is missing: %v", err)
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	if err := errors.Join(errUID, errGID); err != nil {
		t.Fatal(err)
	}
	return account{uid, gid}
}

// folder returns a directory of the account, with a path short enough for a socket.
func (a account) folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fence") // the parent of t.TempDir is closed to other accounts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(dir, a.uid, a.gid); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (a account) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return cmd
}

// run runs a program to its end.
func (a account) run(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := a.command(ctx, dir, program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// serve starts a server, waits for the line of its log that contains ready, and stops it with the
// signal at the end of the test. The program timeout bounds its life also where the test is killed.
func (a account) serve(t *testing.T, ready string, stop syscall.Signal, dir, program string, args ...string) {
	t.Helper()
	bounded := append([]string{"--signal=QUIT", "--kill-after=5", lifetime, program}, args...)
	cmd := a.command(context.Background(), dir, "timeout", bounded...)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	up, ended := make(chan struct{}), make(chan string, 1)
	go func() { ended <- follow(log, ready, up) }()
	t.Cleanup(func() {
		watchdog := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer watchdog.Stop()
		_ = cmd.Process.Signal(stop) // timeout passes it on; an error means that it has ended
		text := <-ended
		if err := cmd.Wait(); err != nil && t.Failed() {
			t.Logf("%s: %v\n%s", program, err, text)
		}
	})
	select {
	case <-up:
	case text := <-ended:
		ended <- text
		t.Fatalf("%s ended:\n%s", program, text)
	case <-time.After(patience):
		t.Fatalf("%s does not report %q", program, ready)
	}
}

// follow reads a log to its end, closes up at the line with ready, and returns the last lines.
func follow(log io.Reader, ready string, up chan<- struct{}) string {
	var lines []string
	for in := bufio.NewScanner(log); in.Scan(); {
		if up != nil && strings.Contains(in.Text(), ready) {
			close(up)
			up = nil
		}
		if lines = append(lines, in.Text()); len(lines) > 60 {
			lines = lines[1:]
		}
	}
	return strings.Join(lines, "\n")
}
