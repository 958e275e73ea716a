package storage

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

const markerText = "conclave data directory, format 1\n"

// Each refusal has its own error, which names the directory, and leaves the
// directory unchanged.
func TestDirectory_Refused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		want    error
	}{
		"of another program": {func(t *testing.T, dir string) { writeFile(t, dir, "precious.txt", "x") }, ErrForeign},
		"of a newer version": {func(t *testing.T, dir string) {
			writeFile(t, dir, "CONCLAVE", "conclave data directory, format 2\n")
		}, ErrNewer},
		"marker damaged": {func(t *testing.T, dir string) { writeFile(t, dir, "CONCLAVE", "") }, ErrCorrupt},
		"database missing": {func(t *testing.T, dir string) {
			writeFile(t, dir, "CONCLAVE", markerText)
			writeFile(t, dir, "marker.manifest.000001.MANIFEST-000001", "")
		}, ErrCorrupt},
		"marker only": {func(t *testing.T, dir string) {
			writeFile(t, dir, "CONCLAVE", markerText)
		}, ErrCorrupt},
		"of a newer Pebble": {func(t *testing.T, dir string) {
			writeFile(t, dir, "CONCLAVE", markerText)
			writeFile(t, dir, "marker.format-version.000999.999", "")
		}, ErrNewer},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.prepare(t, dir)
			before := listFiles(t, dir)
			_, err := Open(Options{Dir: dir})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want %v and %s", err, c.want, dir)
			}
			after := slices.DeleteFunc(listFiles(t, dir), func(name string) bool { return name == lockName })
			if !slices.Equal(before, after) {
				t.Errorf("files after the refusal: %v, before: %v", after, before)
			}
		})
	}
}

// A message that mentions an empty directory, or leaves the operator with no
// other choice, warns of the fences.
func TestDirectory_RefusalWarnsOfNewGroup(t *testing.T) {
	for _, file := range []string{"precious.txt", markerName} {
		dir := t.TempDir()
		writeFile(t, dir, file, "x")
		if _, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), NewGroupWarning) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestDirectory_PathIsFile(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "file", "x")
	for _, path := range []string{filepath.Join(dir, "file"), filepath.Join(dir, "file", "below")} {
		if _, err := Open(Options{Dir: path}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "file")) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The test may run with the permission to write everywhere, so the file system
// is a fake that refuses.
func TestDirectory_NotWritable(t *testing.T) {
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if mutates(op.Kind) {
			return &os.PathError{Op: "mkdir", Path: op.Path, Err: syscall.EACCES}
		}
		return nil
	}))
	if _, err := Open(Options{FS: disk, Dir: "/data"}); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "/data") {
		t.Errorf("%v", err)
	}
}

// A creation that a crash interrupted is done again: nothing was acknowledged
// from it. Only a directory marked as such is cleared.
func TestDirectory_InterruptedCreationIsRepeated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "below")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, creatingName, markerText)
	writeFile(t, dir, "marker.manifest.000001.MANIFEST-000001", "")
	writeFile(t, dir, "000002.log", "half of")
	s := open(t, Options{Dir: dir})
	put(t, s, "a", "1")
	s.Close()
	if got := get(t, open(t, Options{Dir: dir}), "a"); got != "1" {
		t.Errorf("a = %q", got)
	}
}
