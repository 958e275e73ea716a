package storage

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A directory serves one store at a time, whatever path it is opened by.
func TestDirectoryLock_HeldByThisProcess(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		if runtime.GOOS == "windows" {
			t.Skip("symbolic links need a privilege")
		}
		t.Fatal(err)
	}
	s := open(t, Options{Dir: dir})
	for _, name := range []string{dir, link, dir + "/../" + filepath.Base(dir)} {
		if _, err := Open(Options{Dir: name}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
	put(t, s, "a", "1") // the refusals leave the holder undisturbed
	s.Close()
	open(t, Options{Dir: link})
}

// The test's own binary holds the directory in another process until its
// standard input ends.
func TestDirectoryLock_HeldByAnotherProcess(t *testing.T) {
	if dir := os.Getenv("CONCLAVE_TEST_HOLD"); dir != "" {
		s := open(t, Options{Dir: dir})
		fmt.Println("held")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		s.Close()
		return
	}
	dir := t.TempDir()
	holder := exec.Command(os.Args[0], "-test.run=^TestDirectoryLock_HeldByAnotherProcess$")
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
		t.Fatalf("the other process printed %q, %v", line, err)
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

// The test's own binary opens the directory in another process, or locks it as an earlier
// build does, and prints the error.
func TestDirectoryLock_OpenedElsewhere(t *testing.T) {
	dir := os.Getenv("CONCLAVE_TEST_OPEN")
	switch {
	case dir == "":
		t.Skip("run by other tests")
	case os.Getenv("CONCLAVE_TEST_EARLIER") != "":
		_, err := vfs.Default.Lock(filepath.Join(dir, lockName))
		fmt.Printf("locked: %v\n", err)
	default:
		s, err := Open(Options{Dir: dir})
		if err == nil {
			defer s.Close()
		}
		fmt.Printf("opened: %v\n", err)
	}
}

// elsewhere returns what another process prints that opens the directory.
func elsewhere(t *testing.T, dir string, env ...string) string {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestDirectoryLock_OpenedElsewhere$")
	command.Env = append(append(os.Environ(), "CONCLAVE_TEST_OPEN="+dir), env...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// wantInUse checks that no other store can open the directory, by any of its paths, in this
// process or in another one, to write, fill or read it.
func wantInUse(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		for _, access := range []Access{OpenOrCreate, OpenExisting, ReadOnly, Fill} {
			s, err := Open(Options{Dir: path, Access: access})
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, ErrInUse) && !errors.Is(err, ErrNotEmpty) && !errors.Is(err, ErrForeign) {
				t.Errorf("%s, access %d: %v", path, access, err)
			}
		}
		if out := elsewhere(t, path); !strings.Contains(out, "opened: "+ErrInUse.Error()) {
			t.Errorf("%s, another process: %s", path, out)
		}
	}
}

// Nothing that happens to the files in a directory lets a second store in: neither what the
// process itself does, as for a backup of its data folder, nor what others do.
func TestDirectoryLock_SurvivesWhatHappensToFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the system refuses each of these while the file is open")
	}
	for name, disturb := range map[string]func(dir string) error{
		"all files read": func(dir string) error {
			for _, name := range listFiles(t, dir) {
				if _, err := os.ReadFile(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err // Pebble may have removed it
				}
			}
			return nil
		},
		"lock file removed": func(dir string) error { return os.Remove(filepath.Join(dir, lockName)) },
		"lock file replaced": func(dir string) error {
			writeFile(t, dir, "other", "")
			return os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, lockName))
		},
		"lock file linked elsewhere": func(dir string) error {
			other := filepath.Join(dir, "other")
			if err := os.Link(filepath.Join(dir, lockName), other); err != nil {
				return err
			}
			_, err := os.ReadFile(other)
			return errors.Join(err, os.Remove(other))
		},
		"all files removed": func(dir string) error {
			for _, name := range listFiles(t, dir) {
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil { // Pebble may be removing it as well
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			open(t, Options{Dir: dir})
			if err := disturb(dir); err != nil {
				t.Fatal(err)
			}
			wantInUse(t, dir)
		})
	}
}

// cleaned returns when Pebble has removed what it no longer needs: a removal after a test has
// taken the directory away stops the store, as any other change does.
func cleaned(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Do(func(db *pebble.DB) error { db.TestOnlyWaitForCleaning(); return nil }); err != nil {
		t.Fatal(err)
	}
}

// A renamed directory is still in use under its new name. The store that has it open stops at
// the next file, since it would create that under the old name.
func TestDirectoryLock_DirectoryRenamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Options{Dir: dir})
	put(t, s, "a", "1")
	cleaned(t, s)
	moved := dir + "-moved"
	if err := os.Rename(dir, moved); err != nil {
		t.Skipf("the system does not rename a directory with open files: %v", err)
	}
	wantInUse(t, moved)
	put(t, s, "b", "2") // into a file that is open
	err := s.Do(func(db *pebble.DB) error { return db.Flush() })
	if err == nil || !strings.Contains(err.Error(), "renamed or removed") || errors.Is(err, ErrCorrupt) {
		t.Errorf("%v", err)
	}
	s.Close()
	again := open(t, Options{Dir: moved})
	if a, b := get(t, again, "a"), get(t, again, "b"); a != "1" || b != "2" {
		t.Errorf("a = %q, b = %q", a, b)
	}
}

// A directory is replaced by another one of its name, which a second store opens. The first
// writes nothing there, and stops at its next file.
func TestDirectoryLock_DirectoryReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := open(t, Options{Dir: dir})
	put(t, first, "a", "first")
	cleaned(t, first)
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Skipf("the system does not rename a directory with open files: %v", err)
	}
	second := open(t, Options{Dir: dir})
	put(t, second, "a", "second")
	second.Close() // it changes nothing from here on
	before := listFiles(t, dir)
	err := first.Do(func(db *pebble.DB) error { return db.Flush() })
	if err == nil || !strings.Contains(err.Error(), "replaced by another one") {
		t.Errorf("%v", err)
	}
	first.Close()
	if after := listFiles(t, dir); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the first store has changed %v to %v", before, after)
	}
	if got := get(t, open(t, Options{Dir: dir}), "a"); got != "second" {
		t.Errorf("a = %q", got)
	}
}

// Earlier builds lock the file only. Each keeps the other out.
func TestDirectoryLock_EarlierBuild(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	if out := elsewhere(t, dir, "CONCLAVE_TEST_EARLIER=1"); !strings.Contains(out, "locked: ") || strings.Contains(out, "<nil>") {
		t.Errorf("an earlier build locked the directory: %s", out)
	}
	s.Close()
	if out := elsewhere(t, dir, "CONCLAVE_TEST_EARLIER=1"); !strings.Contains(out, "locked: <nil>") {
		t.Fatal(out)
	}
	lock, err := vfs.Default.Lock(filepath.Join(dir, lockName))
	if err != nil {
		t.Fatal(err)
	}
	if out := elsewhere(t, dir); !strings.Contains(out, "opened: "+ErrInUse.Error()) {
		t.Errorf("opened what an earlier build has open: %s", out)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Dir: dir})
}
