package conclave

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func longName(n int) string { return strings.Repeat("x", n) }

// foreignDirectory holds what is not ours.
func foreignDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "holiday.jpg"), []byte("a beach"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// formed makes the directory that of a member that has locked something, and
// closed.
func formed(t *testing.T, c Config) {
	t.Helper()
	n, err := Open(within(t, 20*time.Second), &c)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(expired)
	l := n.FencedLock("x")
	for range 50 {
		mustLock(t, l)
		mustUnlock(t, l)
	}
}

// zero overwrites a file with as many zeros.
func zero(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.WriteFile(path, make([]byte, info.Size()), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
