package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A directory that is being filled is refused until it is finished, whatever it contains,
// and filled again from its beginning.
func TestFill_RefusedUntilFinished(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := CheckVacant(Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"first", "second"} {
		s := open(t, Options{Dir: dir, Access: Fill})
		if got := get(t, s, "k"); got != "" {
			t.Fatalf("%q is left of the attempt before", got)
		}
		put(t, s, "k", value)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, access := range []Access{OpenOrCreate, OpenExisting, ReadOnly} {
			if _, err := Open(Options{Dir: dir, Access: access}); !errors.Is(err, ErrUnfinished) {
				t.Fatalf("access %d: %v", access, err)
			}
		}
		if err := CheckVacant(Options{Dir: dir}); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, Options{Dir: dir, Access: Fill})
	put(t, s, "k", "third")
	if err := s.Finish(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, Options{Dir: dir})
	if got := get(t, s, "k"); got != "third" {
		t.Errorf("%q", got)
	}
	s.Close()
	before := listFiles(t, dir)
	for _, check := range []error{CheckVacant(Options{Dir: dir}), second(Open(Options{Dir: dir, Access: Fill}))} {
		if !errors.Is(check, ErrNotEmpty) {
			t.Errorf("filled twice: %v", check)
		}
	}
	if after := listFiles(t, dir); !slices.Equal(before, after) {
		t.Errorf("%v, then %v", before, after)
	}
}

func second[T any](_ T, err error) error { return err }

// An existing directory is opened only where there is one, and nothing is created.
func TestOpen_ExistingOnly(t *testing.T) {
	for _, access := range []Access{OpenExisting, ReadOnly} {
		missing, empty, foreign := filepath.Join(t.TempDir(), "a"), t.TempDir(), t.TempDir()
		writeFile(t, foreign, "holiday.jpg", "a beach")
		writeFile(t, empty, lockName, "")
		for dir, want := range map[string]error{missing: fs.ErrNotExist, empty: ErrForeign, foreign: ErrForeign} {
			_, err := Open(Options{Dir: dir, Access: access})
			if !errors.Is(err, want) || strings.Contains(err.Error(), "new group") {
				t.Errorf("%s: %v, want %v, and no advice for a new group", dir, err, want)
			}
		}
		if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if len(listFiles(t, empty)) != 1 || len(listFiles(t, foreign)) != 1 {
			t.Error("something was created")
		}
		s := open(t, Options{Dir: empty})
		if _, err := Open(Options{Dir: empty, Access: access}); !errors.Is(err, ErrInUse) {
			t.Errorf("in use: %v", err)
		}
		put(t, s, "k", "v")
		s.Close()
		s = open(t, Options{Dir: empty, Access: access})
		if got := get(t, s, "k"); got != "v" {
			t.Errorf("%q", got)
		}
		s.Close()
	}
}

// Reading changes no file but the lock, and works on a file system that refuses even that.
func TestOpen_ReadOnlyFileSystem(t *testing.T) {
	disk := vfs.NewMem()
	s := open(t, Options{FS: disk})
	put(t, s, "k", "v")
	s.Close()
	refuse := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose || op.Kind == errorfs.OpLock {
			return &fs.PathError{Op: "write", Path: op.Path, Err: syscall.EROFS}
		}
		return nil
	})
	s = open(t, Options{FS: errorfs.Wrap(disk, refuse), Access: ReadOnly})
	if got := get(t, s, "k"); got != "v" {
		t.Errorf("%q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(Options{FS: errorfs.Wrap(disk, refuse), Access: OpenExisting}); !errors.Is(err, syscall.EROFS) {
		t.Errorf("opened for writing: %v", err)
	}
}
