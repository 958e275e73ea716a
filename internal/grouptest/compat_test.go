package grouptest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

var writeCompat = flag.String("write-compat", "", "write a directory of this version to testdata/compat under this name")

// Directories that earlier versions wrote. Every later build must open them and find what
// they hold: see CONTRIBUTING.md.
func TestCompat_OpensDirectoriesOfEarlierVersions(t *testing.T) {
	golden := filepath.Join("testdata", "compat")
	if *writeCompat != "" {
		writeDirectory(t, filepath.Join(golden, *writeCompat))
	}
	versions, err := os.ReadDir(golden)
	if err != nil || len(versions) == 0 {
		t.Fatal("no directories", err)
	}
	for _, version := range versions {
		t.Run(version.Name(), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(golden, version.Name()))); err != nil {
				t.Fatal(err)
			}
			node, err := conclave.Open(t.Context(), &conclave.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer node.Close(t.Context())
			if e, err := node.KV().Get(t.Context(), "key"); err != nil || string(e.Value) != "value" || e.Flags != 7 {
				t.Errorf("key: %+v, %v", e, err)
			}
			if info, err := node.FencedLock("lock").Info(t.Context()); err != nil || !info.Held || info.Fence == 0 {
				t.Errorf("lock: %+v, %v", info, err)
			}
			if info, err := node.Semaphore("permits", 3).Info(t.Context()); err != nil || info.Limit != 3 || info.Available != 1 {
				t.Errorf("semaphore: %+v, %v", info, err)
			}
		})
	}
}

// writeDirectory writes the directory of a group of one, with what a session without a TTL
// holds.
func writeDirectory(t *testing.T, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	node, err := conclave.Open(t.Context(), &conclave.Config{Dir: dir})
	must(err)
	_, err = node.KV().Put(t.Context(), "key", []byte("value"), conclave.WithFlags(7))
	must(err)
	s, err := node.NewSession(t.Context(), &conclave.SessionConfig{TTL: conclave.NoTTL, LockDelay: time.Second, NoChecks: true})
	must(err)
	_, err = s.FencedLock("lock").Lock(t.Context())
	must(err)
	_, err = s.Semaphore("permits", 3).Acquire(t.Context(), 2)
	must(err)
	must(node.Close(t.Context()))
}
