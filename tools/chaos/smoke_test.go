//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Five seconds of one nemesis against three members, as a user runs it.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for 10 s")
	}
	if err := canRun(); err != nil {
		t.Skip(err)
	}
	tool := filepath.Join(t.TempDir(), "chaos")
	if out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := filepath.Join(t.TempDir(), "run")
	cmd := exec.Command(tool, "-for", "4s", "-nemesis", "kill", "-members", "3", "-rate", "200", "-seed", "1", "-dir", dir)
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
}
