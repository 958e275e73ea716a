package consultest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNPM runs npm's client of Consul. It is skipped where there is no node, no npm, or no registry.
func TestNPM(t *testing.T) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIPPED: %s is not installed, so npm's client of Consul was not tested: apt-get install nodejs npm", program)
		}
	}
	dir := t.TempDir() // the tree stays as it is
	must(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "npm"))))
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: npm's client of Consul cannot be installed, so it was not tested: %v\n%s", err, out)
	}
	runScript(t, dir, 6, "node", "client.js")
}

// runScript runs a program in a folder against two members, and checks how many parts it reports.
func runScript(t *testing.T, dir string, parts int, program, file string) {
	t.Helper()
	a := start(t, 2)
	script := exec.CommandContext(bounded(t), program, file)
	script.Dir = dir
	script.Env = append(os.Environ(), "ADDR_A="+a.addr(0), "ADDR_B="+a.addr(1))
	out, err := script.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
	if n := strings.Count(string(out), "ok: "); n != parts {
		t.Errorf("%s: %d parts, want %d:\n%s", file, n, parts, out)
	}
}
