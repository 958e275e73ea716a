//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// asTool is the environment variable with which a test starts its own program as the tool: to build that takes seconds.
const asTool = "CONCLAVE_CHAOS_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(asTool) != "" {
		main()
	}
	os.Exit(m.Run())
}

// Three seconds of one nemesis against three members, as a user runs it. Each of its restarts is a SIGTERM or a kill.
func TestSmoke(t *testing.T) {
	out := chaos(t, "-for", "3s", "-nemesis", "restart-workers", "-members", "3", "-rate", "200", "-seed", "1")
	// That locks were held exclusively as well, and sets of all kinds, the tool has checked.
	if !regexp.MustCompile(`(?m)^restart-workers( +\d+){5}( +[1-9]\d*){3}( +\d+){2}( +[1-9]\d*){6} `).MatchString(out) {
		t.Errorf("no lock was shared, no set was taken, no shard moved or was taken over, or no job was run or refused:\n%s", out)
	}
}

// The same with four groups, each of which has operations of every member before the tool ends.
func TestSmoke_Groups(t *testing.T) {
	chaos(t, "-for", "3s", "-nemesis", "kill", "-members", "3", "-groups", "4", "-rate", "200", "-seed", "1")
}

// A real firewall between two members, in one direction: the nemesis fails unless the member whose connections it drops reports it.
func TestFirewall_OneWayCutReported(t *testing.T) {
	out := chaos(t, "-v", "-for", "1s", "-nemesis", "firewall", "-members", "3", "-rate", "100", "-seed", "1")
	if !strings.Contains(out, "a firewall at m") || !strings.Contains(out, " reports it; heal") {
		t.Error(out)
	}
}

// chaos runs the tool, which finds no violation, and returns its output.
func chaos(t *testing.T, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs processes for 10 s and more")
	}
	if err := canRun(); err != nil {
		t.Skip(err)
	}
	tool, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	cmd := exec.Command(tool, append(args, "-dir", dir)...)
	cmd.Env = append(os.Environ(), asTool+"=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == exitUsage && strings.Contains(string(out), "namespaces") {
		t.Skipf("namespaces are not permitted here: %s", out)
	}
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, want := range []string{"nemesis", "0 violations"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory of a run without violations is left behind: %v", err)
	}
	return string(out)
}
