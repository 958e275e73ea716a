package consultest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPython runs Debian's client of Consul for Python. It is skipped where that is not installed.
func TestPython(t *testing.T) {
	const python = "/usr/bin/python3" // the packages of the system are for this one
	if exec.CommandContext(t.Context(), python, "-c", "import consul").Run() != nil {
		t.Skip("SKIPPED: the client of Consul for Python is not installed, so it was not tested: apt-get install python3-consul")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	a := start(t, 2)
	script := exec.CommandContext(ctx, python, "client.py")
	script.Dir = filepath.Join("testdata", "python")
	script.Env = append(os.Environ(), "ADDR_A="+a.addr(0), "ADDR_B="+a.addr(1))
	out, err := script.CombinedOutput()
	if err != nil {
		t.Fatalf("client.py: %v\n%s", err, out)
	}
	if n := strings.Count(string(out), "ok: "); n != 4 {
		t.Errorf("%d parts, want 4:\n%s", n, out)
	}
}
