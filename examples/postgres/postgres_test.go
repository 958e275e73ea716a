//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// programEnv makes the test's binary, when the tests start it, the program and not the tests. The workers
// inherit it.
const programEnv = "CONCLAVE_EXAMPLE_POSTGRES"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// program returns a command that runs the program with its temporary files in a folder that must be empty at the
// end of the test. It skips the test where there is no PostgreSQL.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := findServer(); errors.Is(err, errNotInstalled) {
		t.Skipf("SKIPPED: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	temp, err := os.MkdirTemp("", "fence") // the parent of t.TempDir is closed to the server's account
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := os.ReadDir(temp)
		if err != nil || len(left) > 0 {
			t.Errorf("the temporary folder has %v, %v, want nothing", left, err)
		}
		if err := os.RemoveAll(temp); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute) // beyond the program's own limit
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), programEnv+"=1", "TMPDIR="+temp)
	return cmd
}

// inOrder fails the test unless the output has lines that match the patterns, in their order.
func inOrder(t *testing.T, output string, patterns ...string) {
	t.Helper()
	lines := strings.Split(output, "\n")
	for _, pattern := range patterns {
		matches := regexp.MustCompile(pattern).MatchString
		for len(lines) > 0 && !matches(lines[0]) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			t.Fatalf("no line matches %q after the ones before it:\n%s", pattern, output)
		}
		lines = lines[1:]
	}
}

// The write of a holder that SIGSTOP outlasted its session is refused, and the table has only what the next
// holder wrote.
func TestPostgres_HolderPaused(t *testing.T) {
	output, err := program(t).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	inOrder(t, string(output),
		`database is PostgreSQL`,
		`anna +holds the lock with fence 1,`,
		`anna +is PAUSED \(SIGSTOP to process \d+\)`,
		`ben +requests the lock$`,
		`ben +holds the lock with fence 2,`,
		`ben +writes an invoice with fence 2; the database accepts it`,
		`ben +writes an invoice with fence 2; the database accepts it`,
		`anna +is resumed`,
		`anna +writes an invoice with fence 1; the database REFUSES it: .*stale fence: 1 came after 2$`,
		`anna +wrote nothing\. .* another holder, with fence 2$`,
		`anna +gives up the lost hold`,
		`^The table invoices:`,
		`database +1 +ben +2$`,
		`database +2 +ben +2$`,
		`^It has the invoices of ben and no other\.`,
	)
	if n := bytes.Count(output, []byte("the database accepts it")); n != 2 {
		t.Errorf("%d writes were accepted, want 2:\n%s", n, output)
	}
}

// It is the fence that refuses the write: the same scene without it has a late write in the table.
func TestPostgres_Unfenced(t *testing.T) {
	output, err := program(t, "-unfenced").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	inOrder(t, string(output),
		`ben +writes an invoice with fence 2; the database accepts it`,
		`anna +is resumed`,
		`anna +writes an invoice with fence 1; the database accepts it`,
		`database +2 +ben +2$`,
		`database +3 +anna +1$`,
	)
}

// A machine without PostgreSQL gets the command that installs it.
func TestFindServer_NotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	defer func(installed []string) { folders = installed }(folders)
	folders = []string{t.TempDir()}
	if _, err := findServer(); !errors.Is(err, errNotInstalled) || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("got %v, want what to install", err)
	}
}

// Ctrl-C ends the workers, the paused one included, and the server.
func TestPostgres_Interrupted(t *testing.T) {
	cmd := program(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var failure bytes.Buffer
	cmd.Stderr = &failure
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	for buffer := make([]byte, 4096); !strings.Contains(output.String(), "PAUSED"); {
		n, err := out.Read(buffer)
		output.Write(buffer[:n])
		if err != nil {
			t.Fatalf("%v\n%s%s", err, output.String(), failure.String())
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(&output, out); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(failure.String(), "context canceled") {
		t.Errorf("got %v, want exit status 1 for a canceled context:\n%s%s", err, output.String(), failure.String())
	}
}
