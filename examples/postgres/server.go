//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errNotInstalled is returned where the machine lacks what a server needs.
var errNotInstalled = errors.New("PostgreSQL is not installed")

// installation is where the server's programs are, and the account that runs them.
type installation struct {
	initdb, postgres string
	account          *syscall.Credential // nil: that of this process
}

// folders are where systems install PostgreSQL without adding it to PATH.
var folders = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/pgsql-*/bin",          // PostgreSQL's own packages for Fedora and others
	"/usr/local/pgsql/bin",
	"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
}

// findServer returns the installation. Its error tells what to install.
func findServer() (installation, error) {
	var i installation
	if i.initdb, i.postgres = findProgram("initdb"), findProgram("postgres"); i.initdb == "" || i.postgres == "" {
		return i, fmt.Errorf("%w (initdb and postgres are neither in PATH nor in %s): install it with apt-get install postgresql, "+
			"dnf install postgresql-server or brew install postgresql; it need not run", errNotInstalled, strings.Join(folders, ", "))
	}
	if os.Geteuid() != 0 {
		return i, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return i, fmt.Errorf("%w completely: this is root, which the server refuses, and there is no user postgres to run it: %w", errNotInstalled, err)
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	i.account = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return i, errors.Join(errUID, errGID)
}

func findProgram(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, pattern := range folders {
		found, _ := filepath.Glob(filepath.Join(pattern, name)) // fails for a malformed pattern only
		slices.Sort(found)
		if len(found) > 0 {
			return found[len(found)-1] // of several versions, a newer one
		}
	}
	return ""
}

// server is a running PostgreSQL server in a temporary directory.
type server struct {
	installation
	dir    string
	source string // the connection string for database/sql
	cmd    *exec.Cmd
	in     io.Closer     // its end stops the server
	ended  chan struct{} // closed at the end of the server's log, which is that of the server
	log    string        // its last lines, valid once ended is closed
}

// supervisor is a shell's program. It runs a server until its own input ends, as it also does when the process
// at the other end is killed, and closes its copy of the log, so that the log ends with the server. SIGINT is
// PostgreSQL's fast shutdown.
const supervisor = `"$@" & server=$!; exec 2>&-; read -r _; kill -INT $server; wait $server`

// startServer initializes a data directory, and returns when the server accepts connections. No TCP port is
// opened, and only the account of the server, and root, can enter the directory of its socket.
func startServer(ctx context.Context) (*server, error) {
	i, err := findServer()
	if err != nil {
		return nil, err
	}
	s := &server{installation: i, ended: make(chan struct{})}
	if s.dir, err = os.MkdirTemp("", "conclave-pg-"); err != nil { // short: the path of a socket has 103 bytes at most
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

func (s *server) start(ctx context.Context) error {
	if s.account != nil {
		if err := os.Chown(s.dir, int(s.account.Uid), int(s.account.Gid)); err != nil {
			return err
		}
	}
	s.source = "host=" + s.dir + " user=demo dbname=postgres"
	data := filepath.Join(s.dir, "data")
	// fsync and --no-sync: nothing needs to survive the demo.
	out, err := s.command(ctx, s.initdb, "--pgdata="+data, "--username=demo", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	s.cmd = s.command(context.WithoutCancel(ctx), "/bin/sh", "-c", supervisor, "sh",
		s.postgres, "-D", data, "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off")
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	up := make(chan struct{})
	go s.follow(log, up)
	select {
	case <-up:
		return nil
	case <-s.ended:
		return errors.Join(errors.New("the server ended at its start"), s.shutDown())
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("wait for the server: %w", ctx.Err()), s.shutDown())
	}
}

// command returns a command of the server's account, in a process group of its own: Ctrl-C in a terminal must not
// end the server before its clients.
func (s *server) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.account}
	return cmd
}

// follow reads the log to its end, and closes up when the server is ready.
func (s *server) follow(log io.Reader, up chan<- struct{}) {
	defer close(s.ended)
	var lines []string
	for in := bufio.NewScanner(log); in.Scan(); {
		if up != nil && strings.Contains(in.Text(), "ready to accept connections") {
			close(up)
			up = nil
		}
		if lines = append(lines, in.Text()); len(lines) > 40 {
			lines = lines[1:]
		}
	}
	s.log = strings.Join(lines, "\n")
}

// stop ends the server, also if a connection is left, and removes its directory.
func (s *server) stop() error { return errors.Join(s.shutDown(), os.RemoveAll(s.dir)) }

func (s *server) shutDown() error {
	_ = s.in.Close() // fails only if the supervisor has ended
	watchdog := time.AfterFunc(30*time.Second, func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	defer watchdog.Stop()
	<-s.ended
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("the server ended: %w\n%s", err, s.log)
	}
	return nil
}
