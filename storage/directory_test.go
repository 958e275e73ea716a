package storage

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Each directory is refused with its own error, which names it, and left as it
// was.
func TestADirectoryThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		want    error
	}{
		"of something else": {func(t *testing.T, dir string) { write(t, dir, "precious.txt", "x") }, ErrForeign},
		"of a newer version": {func(t *testing.T, dir string) {
			write(t, dir, "CONCLAVE", "conclave data directory, format 2\n")
		}, ErrNewer},
		"with a damaged marker": {func(t *testing.T, dir string) { write(t, dir, "CONCLAVE", "") }, ErrCorrupt},
		"with the database gone": {func(t *testing.T, dir string) {
			write(t, dir, "CONCLAVE", "conclave data directory, format 1\n")
			write(t, dir, "marker.manifest.000001.MANIFEST-000001", "")
		}, ErrCorrupt},
		"with nothing but the marker": {func(t *testing.T, dir string) {
			write(t, dir, "CONCLAVE", "conclave data directory, format 1\n")
		}, ErrCorrupt},
		"of a newer Pebble": {func(t *testing.T, dir string) {
			write(t, dir, "CONCLAVE", "conclave data directory, format 1\n")
			write(t, dir, "marker.format-version.000999.999", "")
		}, ErrNewer},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.prepare(t, dir)
			before := list(t, dir)
			_, err := Open(Options{Dir: dir})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want %v and %s", err, c.want, dir)
			}
			after := slices.DeleteFunc(list(t, dir), func(name string) bool { return name == lockName })
			if !slices.Equal(before, after) {
				t.Errorf("left with %v, was %v", after, before)
			}
		})
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAFileInPlaceOfTheDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "file", "x")
	for _, path := range []string{filepath.Join(dir, "file"), filepath.Join(dir, "file", "below")} {
		if _, err := Open(Options{Dir: path}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "file")) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Whoever runs the tests may be allowed to write everywhere, so the file system
// says no itself.
func TestADirectoryThatIsNotWritable(t *testing.T) {
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

// One directory serves one store, by whatever name it is called.
func TestADirectoryInUseByThisProcess(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Dir: dir})
	for _, name := range []string{dir, link, dir + "/../" + filepath.Base(dir)} {
		if _, err := Open(Options{Dir: name}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
	put(t, s, "a", "1") // the holder is not disturbed
	s.Close()
	open(t, Options{Dir: link})
}

// The test's own program holds the directory in another process, until its
// standard input ends.
func TestADirectoryInUseByAnotherProcess(t *testing.T) {
	if dir := os.Getenv("CONCLAVE_TEST_HOLD"); dir != "" {
		s := open(t, Options{Dir: dir})
		fmt.Println("held")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		s.Close()
		return
	}
	dir := t.TempDir()
	holder := exec.Command(os.Args[0], "-test.run=^TestADirectoryInUseByAnotherProcess$")
	holder.Env = append(os.Environ(), "CONCLAVE_TEST_HOLD="+dir)
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("%v, want ErrInUse", err)
	}
	stdin.Close()
	if err := holder.Wait(); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Dir: dir})
}

// A creation that a crash cut short is done again; nothing was acknowledged
// from it. Only a directory that says so itself is cleared.
func TestACreationCutShort(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "below")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, creatingName, "conclave data directory, format 1\n")
	write(t, dir, "marker.manifest.000001.MANIFEST-000001", "")
	write(t, dir, "000002.log", "half of")
	s := open(t, Options{Dir: dir})
	put(t, s, "a", "1")
	s.Close()
	if got := get(t, open(t, Options{Dir: dir}), "a"); got != "1" {
		t.Errorf("a = %q", got)
	}
}
