package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/conclave-go/conclave"
)

// relay is an address that leads to a member. It calls reached once a connection has carried limit
// bytes from the member, and then ends the connection if that returns true.
func relay(t *testing.T, n *conclave.Node, limit int64, reached func() (end bool)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must0(t, err)
	t.Cleanup(func() { _ = l.Close() })
	carry := func(down net.Conn) {
		defer down.Close()
		up, err := net.Dial("tcp", n.Addr())
		if err != nil {
			return
		}
		defer up.Close()
		_ = up.(*net.TCPConn).SetReadBuffer(64 << 10) // what is not carried stays with the member
		go func() { _, _ = io.Copy(up, down) }()
		if _, err := io.CopyN(down, up, limit); err == nil && !reached() {
			_, _ = io.Copy(down, up)
		}
	}
	go func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			go carry(down)
		}
	}()
	return l.Addr().String()
}

// backedUp puts keys with 400 KiB each into a group and backs it up.
func backedUp(t *testing.T, n *conclave.Node, keys int) (path string, backup []byte) {
	t.Helper()
	value := []byte(strings.Repeat("x", 400<<10))
	for i := range keys {
		_, err := n.KV().Put(within(t), fmt.Sprint("k", i), value)
		must0(t, err)
	}
	path = filepath.Join(t.TempDir(), "b")
	must(t, n, "backup", path)
	backup, err := os.ReadFile(path)
	must0(t, err)
	return path, backup
}

// wantKept checks that a backup is as it was, and alone.
func wantKept(t *testing.T, path string, backup []byte) {
	t.Helper()
	if now, err := os.ReadFile(path); err != nil || string(now) != string(backup) {
		t.Errorf("the backup of %d bytes has become %d bytes, %v", len(backup), len(now), err)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("left behind: %v, %v", all, err)
	}
}

func TestBackup_ConnectionLost(t *testing.T) {
	n := member(t, t.TempDir())
	path, backup := backedUp(t, n, 20)
	for _, limit := range []int64{64 << 10, 4 << 20} {
		var out, errs strings.Builder
		addr := relay(t, n, limit, func() bool { return true })
		code := run([]string{"--addr", addr, "backup", path, "--overwrite"}, strings.NewReader(""), &out, &errs)
		want(t, result{out.String(), errs.String(), code}, exitIncomplete, "incomplete")
		wantKept(t, path, backup)
	}
	var out, errs strings.Builder
	addr := relay(t, n, 4<<20, func() bool { return true })
	code := run([]string{"--addr", addr, "backup", "-"}, strings.NewReader(""), &out, &errs)
	want(t, result{"", errs.String(), code}, exitIncomplete, "incomplete")
}

func TestBackup_MemberStopped(t *testing.T) {
	n := member(t, t.TempDir())
	path, backup := backedUp(t, n, 100) // more than queues and the buffers of two connections take
	addr := relay(t, n, 2<<20, func() bool { _ = n.Close(within(t)); return false })
	var out, errs strings.Builder
	code := run([]string{"--addr", addr, "backup", path, "--overwrite"}, strings.NewReader(""), &out, &errs)
	want(t, result{out.String(), errs.String(), code}, exitIncomplete, "incomplete")
	wantKept(t, path, backup)
}

func TestBackup_Signal(t *testing.T) {
	n := member(t, t.TempDir())
	path, backup := backedUp(t, n, 100)
	reached, stopped := make(chan struct{}), make(chan struct{})
	addr := relay(t, n, 2<<20, func() bool { close(reached); <-stopped; return true })
	p := start(t, "--addr", addr, "backup", path, "--overwrite")
	<-reached
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.wait(); code != 128+15 {
		t.Errorf("exit code %d", code)
	}
	close(stopped)
	wantKept(t, path, backup)
}

func TestBackup_OwnerOnly(t *testing.T) {
	path, _ := backedUp(t, member(t, ""), 1)
	must0(t, os.Chmod(path, 0o644))
	must(t, member(t, ""), "backup", path, "--overwrite")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// Whatever reads standard output, the exit code is that of the backup.
func TestBackup_WithoutReader(t *testing.T) {
	n := member(t, "")
	path := filepath.Join(t.TempDir(), "b")
	var errs strings.Builder
	code := run([]string{"--addr", n.Addr(), "backup", path}, nil, failing{}, &errs)
	want(t, result{"", errs.String(), code}, 0, "is written, and standard output failed")
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// failing is a writer whose reader has ended.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
