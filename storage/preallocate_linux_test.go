package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A log has its full length from the second write on, so that a sync need not write the
// length; and what is behind its last record is no record after a crash.
func TestPreallocate_LogHasItsLength(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	put(t, s, "first", "1")
	put(t, s, "second", "2")
	crashed := t.TempDir()
	copyInUse(t, crashed, dir)
	length := int64(0)
	for _, name := range listFiles(t, crashed) {
		if info, err := os.Stat(filepath.Join(crashed, name)); err == nil && strings.HasSuffix(name, ".log") {
			length = max(length, info.Size())
		}
	}
	if length < 16<<20 && supportsFallocate(t) {
		t.Errorf("the log has %d bytes", length)
	}
	for range 2 { // the second time after a start that has written nothing
		again := open(t, Options{Dir: crashed})
		if first, second := get(t, again, "first"), get(t, again, "second"); first != "1" || second != "2" {
			t.Errorf("found %q and %q", first, second)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// copyInUse copies the files of an open store. Pebble deletes in the background what it no
// longer needs after a start; a file that is deleted meanwhile is left out.
func copyInUse(t *testing.T, to, from string) {
	t.Helper()
	for _, name := range listFiles(t, from) {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, to, name, string(data))
	}
}

func supportsFallocate(t *testing.T) bool {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return !errors.Is(unix.Fallocate(int(f.Fd()), 0, 0, 1), errors.ErrUnsupported)
}
