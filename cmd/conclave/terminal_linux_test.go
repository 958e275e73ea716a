package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal returns the two ends of a terminal: what is written to screen can be read from it.
func terminal(t *testing.T) (reader, screen *os.File) {
	t.Helper()
	reader, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	must0(t, unix.IoctlSetPointerInt(int(reader.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(reader.Fd()), unix.TIOCGPTN)
	must0(t, err)
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must0(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	return reader, screen
}

// A value is on a line of its own at a terminal, and as it is elsewhere.
func TestGet_NewlineAtTerminal(t *testing.T) {
	n := member(t, "")
	must(t, n, "kv", "put", "plain", "8080")
	must(t, n, "kv", "put", "line", "8081\n")
	for key, value := range map[string]string{"plain": "8080", "line": "8081\n"} {
		if out := must(t, n, "kv", "get", key); out != value {
			t.Errorf("%q, want %q", out, value)
		}
		reader, screen := terminal(t)
		cmd := exec.Command("sh", "-c", `"$0" "$@"; echo end`, os.Args[0], "--addr", n.Addr(), "kv", "get", key)
		cmd.Env, cmd.Stdout = append(os.Environ(), runVariable+"=1"), screen
		must0(t, cmd.Run())
		lines := bufio.NewReader(reader)
		for _, want := range []string{strings.TrimSpace(value), "end"} {
			got, err := lines.ReadString('\n')
			must0(t, err)
			if strings.TrimSpace(got) != want {
				t.Errorf("line %q, want %q", got, want)
			}
		}
	}
}

// At a terminal top shows one picture after the other, each from the upper left corner on.
func TestTop_AtTerminal(t *testing.T) {
	n := member(t, "")
	must0(t, lockNow(t, n, "busy"))
	go func() { _, _ = n.FencedLock("busy").Lock(t.Context()) }()
	awaitWaiters(t, n.FencedLock("busy"), 1)
	reader, screen := terminal(t)
	cmd := exec.Command(os.Args[0], "--addr", n.Addr(), "top", "--interval", "10ms")
	cmd.Env, cmd.Stdout = append(os.Environ(), runVariable+"=1"), screen
	must0(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	pictures := 0
	for lines := bufio.NewReader(reader); pictures < 3; {
		line, err := lines.ReadString('\n')
		must0(t, err)
		switch {
		case strings.Contains(line, clearScreen+"1 lock waited for"):
			pictures++
		case strings.Contains(line, "waited for"):
			t.Errorf("%q, want it on an empty screen", line)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	must0(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
