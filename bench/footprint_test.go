package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Three agents have files, memory and calls, and the figures of each phase are those.
func TestRun_Footprint(t *testing.T) {
	t.Parallel() // most of the time it waits for the compiler
	dir := t.TempDir()
	agent := filepath.Join(dir, "conclave")
	build := exec.Command("go", "build", "-o", agent, ".")
	build.Dir = filepath.Join("..", "cmd", "conclave")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var out bytes.Buffer
	o := options{footprint: 2 * time.Second, rate: 100, agent: agent, turns: 1, length: time.Second, dir: dir}
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[2], "calls a second") || strings.HasPrefix(lines[2], "0 calls") {
		t.Fatalf("want a header and two phases, the second with calls:\n%s", &out)
	}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if disk, err := strconv.ParseFloat(fields[len(fields)-3], 64); err != nil || disk <= 0 {
			t.Errorf("no disk: %q", line)
		}
		if heap, err := strconv.ParseFloat(fields[len(fields)-1], 64); err != nil || heap <= 0 {
			t.Errorf("no heap: %q", line)
		}
	}
}
