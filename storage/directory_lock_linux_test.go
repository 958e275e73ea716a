package storage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory has a second path that no symbolic link shows. Through a read-only one the file
// system refuses LOCK, and the directory is still in use.
func TestDirectoryLock_BindMount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Options{Dir: dir})
	put(t, s, "a", "1")
	writable, readOnly := mounted(t, dir, 0), mounted(t, dir, unix.MS_RDONLY)
	wantInUse(t, writable)
	if _, err := Open(Options{Dir: readOnly, Access: ReadOnly}); !errors.Is(err, ErrInUse) {
		t.Errorf("read-only: %v", err)
	}
	put(t, s, "b", "2")
	s.Close()
	again := open(t, Options{Dir: readOnly, Access: ReadOnly})
	if a, b := get(t, again, "a"), get(t, again, "b"); a != "1" || b != "2" {
		t.Errorf("a = %q, b = %q", a, b)
	}
	wantInUse(t, writable)
}

// mounted returns another path of a directory.
func mounted(t *testing.T, dir string, flags uintptr) string {
	t.Helper()
	path := t.TempDir()
	if err := unix.Mount(dir, path, "", unix.MS_BIND, ""); err != nil {
		if errors.Is(err, os.ErrPermission) {
			t.Skipf("the test may not mount: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if flags != 0 {
		if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	return path
}
