package consultest

import (
	"os"
	"path/filepath"
	"testing"
)

// dskitModule is the module of the program in testdata/dskit. dskit needs its own version of memberlist.
const dskitModule = `module program

go 1.26.0

require github.com/grafana/dskit v0.0.0-20260703122047-de1ec7541c44

replace github.com/hashicorp/memberlist => github.com/grafana/memberlist v0.3.1-0.20260515134459-1798cf41aca7
`

// buildDskit compiles the program, or skips the test where its modules cannot be had.
func buildDskit(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "dskit"))))
	must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(dskitModule), 0o600))
	if err := goCommand(t, dir, "mod", "tidy"); err != nil {
		t.Skipf("SKIPPED: the modules of dskit cannot be downloaded, so it was not tested: %v", err)
	}
	must(t, goCommand(t, dir, "build", "-o", "dskit", "."))
	return filepath.Join(dir, "dskit")
}

// TestDskit has instances of a ring of dskit, as of Loki and Mimir, enter it at once, each with a member of its
// own. They write one key by check-and-set, and watch it by blocking queries. An instance whose member has been
// killed drops out for want of heartbeats, and one that leaves takes itself out.
func TestDskit(t *testing.T) {
	program := buildDskit(t)
	a := start(t, 3)
	instances := make([]*process, 3)
	for i, name := range []string{"a", "b", "c"} {
		instances[i] = launch(t, program, a.addr(i), name)
	}
	for _, p := range instances {
		p.await("instances a b c")
	}
	a.group.Kill(2)
	for _, p := range instances[:2] {
		p.await("instances a b")
	}
	must(t, instances[1].stdin.Close())
	instances[1].finish()
	instances[0].await("instances a")
}
