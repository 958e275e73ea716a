package consultest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPython runs Debian's client of Consul for Python. It is skipped where that is not installed.
func TestPython(t *testing.T) {
	const python = "/usr/bin/python3" // the packages of the system are for this one
	if exec.CommandContext(t.Context(), python, "-c", "import consul").Run() != nil {
		t.Skip("SKIPPED: the client of Consul for Python is not installed, so it was not tested: apt-get install python3-consul")
	}
	runScript(t, filepath.Join("testdata", "python"), 4, python, "client.py")
}
