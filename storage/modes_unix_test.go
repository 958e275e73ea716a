//go:build unix

package storage

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// modes returns the modes of a directory and of its files.
func modes(t *testing.T, dir string) map[string]os.FileMode {
	t.Helper()
	found := make(map[string]os.FileMode)
	for _, name := range append(listFiles(t, dir), "") {
		info, err := os.Stat(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			continue // Pebble removes what it does not need
		}
		if err != nil {
			t.Fatal(err)
		}
		found[name] = info.Mode().Perm()
	}
	return found
}

func wantPrivate(t *testing.T, dir string, wantDir os.FileMode) {
	t.Helper()
	for name, mode := range modes(t, dir) {
		if want := os.FileMode(privateFile); name != "" && mode != want || name == "" && mode != wantDir {
			t.Errorf("%s has mode %v", filepath.Join(dir, name), mode)
		}
	}
}

// used opens a store, uses each way in which Pebble and its callers create a file, and
// checks the modes meanwhile: a new log, a recycled one, tables, manifests, and markers.
func used(t *testing.T, options Options, wantDir os.FileMode) {
	t.Helper()
	options.MemTableSize = 64 << 10
	s := open(t, options)
	for range 3 {
		if _, err := writeLoad(s); err != nil {
			t.Fatal(err)
		}
		for name, mode := range modes(t, options.Dir) { // one may have been created just now, with less
			if name != "" && mode&others != 0 {
				t.Errorf("%s has mode %v", name, mode)
			}
		}
	}
	for name, create := range map[string]func(string) error{
		"beside":    func(name string) error { return closed(s.FS().OpenReadWrite(name, "test")) },
		"created":   func(name string) error { return closed(s.FS().Create(name, "test")) },
		"directory": func(name string) error { return s.FS().MkdirAll(name, 0o755) },
	} {
		path := filepath.Join(options.Dir, name)
		if err := create(path); err != nil {
			t.Fatal(err)
		}
		want := os.FileMode(privateFile)
		if name == "directory" {
			want = privateDir
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantPrivate(t, options.Dir, wantDir)
}

func closed(file interface{ Close() error }, err error) error {
	if err != nil {
		return err
	}
	return file.Close()
}

// A process creates files for its user only, whatever its umask. A umask is the process's,
// so each runs in one of its own.
func TestModes_EachUmask(t *testing.T) {
	if dir := os.Getenv("CONCLAVE_TEST_MODES"); dir != "" {
		var mask int
		if _, err := fmt.Sscanf(os.Getenv("CONCLAVE_TEST_UMASK"), "%o", &mask); err != nil {
			t.Fatal(err)
		}
		syscall.Umask(mask)
		used(t, Options{Dir: filepath.Join(dir, "new", "data")}, privateDir)
		wantPrivate(t, filepath.Join(dir, "new", "data"), privateDir)
		if info, err := os.Stat(filepath.Join(dir, "new")); err != nil || info.Mode().Perm() != privateDir {
			t.Errorf("a parent has mode %v, %v", info.Mode(), err)
		}
		used(t, Options{Dir: filepath.Join(dir, "existing")}, 0o755)
		return
	}
	for _, mask := range []string{"0", "022", "077", "0277", "0777"} {
		t.Run(mask, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "existing"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, "existing"), 0o755); err != nil {
				t.Fatal(err)
			}
			command := exec.Command(os.Args[0], "-test.run=^TestModes_EachUmask$")
			command.Env = append(os.Environ(), "CONCLAVE_TEST_MODES="+dir, "CONCLAVE_TEST_UMASK="+mask)
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// A directory of an earlier build, whose files all users may read, opens. Its files are
// restricted, and the logger learns of them and of the directory.
func TestModes_OfEarlierBuild(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	put(t, s, "a", "1")
	s.Close()
	for _, name := range listFiles(t, dir) {
		if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s = open(t, Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	wantPrivate(t, dir, 0o755)
	if got := get(t, s, "a"); got != "1" {
		t.Errorf("a = %q", got)
	}
	s.Close()
	for _, want := range []string{"data directory is open to other users", "data files were open to other users", dir, markerName} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in %s", want, log.String())
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	open(t, Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if strings.Contains(log.String(), "open to other users") {
		t.Error(log.String())
	}
}

// Kubernetes gives a volume to a group, with modes that the container's user may not change:
// directory 2775, files 0660. That is no reason to refuse them, and a group that may write
// the directory still cannot read what the store creates.
func TestModes_VolumeOfGroup(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o775|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	used(t, Options{Dir: dir}, 0o775)
	for _, name := range listFiles(t, dir) {
		if err := os.Chmod(filepath.Join(dir, name), 0o660); err != nil {
			t.Fatal(err)
		}
	}
	used(t, Options{Dir: dir}, 0o775)
}

// Reading a directory changes no mode in it.
func TestModes_ReadOnly(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	put(t, s, "a", "1")
	s.Close()
	if err := os.Chmod(filepath.Join(dir, markerName), 0o644); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Dir: dir, Access: ReadOnly})
	if mode := modes(t, dir)[markerName]; mode != 0o644 {
		t.Errorf("%v", mode)
	}
}

// The files of an earlier build are restricted although the process lacks descriptors for a moment.
func TestModes_Shortage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	put(t, s, "a", "1")
	s.Close()
	lists := func(op errorfs.Op) bool { return op.Kind == errorfs.OpList }
	for at := int64(1); ; at++ {
		for _, name := range listFiles(t, dir) {
			if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		short := &shortOf{err: syscall.EMFILE, at: at, times: 3, matches: lists}
		s := open(t, Options{Dir: dir, FS: errorfs.Wrap(newPrivateFS(), short)})
		wantPrivate(t, dir, 0o755)
		s.Close()
		if short.failed == 0 {
			return
		}
	}
}
