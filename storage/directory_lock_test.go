package storage

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
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
