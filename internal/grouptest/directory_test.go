package grouptest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/storage"
)

// A directory that is in use is refused, and the member that uses it is not disturbed.
func TestDirectory_InUse(t *testing.T) {
	t.Parallel()
	t.Run("by this process", func(t *testing.T) {
		c := SoloConfig(t)
		n, err := conclave.Open(Bounded(t), &c)
		if err != nil {
			t.Fatal(err)
		}
		defer Kill(n)
		l := n.FencedLock("x")
		f := MustLock(t, l)
		WantOpenError(t, conclave.Config{Dir: c.Dir}, storage.ErrInUse, c.Dir, "one member in one process")
		if now, err := l.Fence(); now != f || err != nil {
			t.Error(now, err)
		}
		MustUnlock(t, l)
	})
}

// formed opens and kills a member twice, which locks something each time, and returns
// the last fence.
func formed(t *testing.T, c conclave.Config) (last conclave.Fence) {
	t.Helper()
	for range 2 {
		n, err := conclave.Open(Bounded(t), &c)
		if err != nil {
			t.Fatal(err)
		}
		l := n.FencedLock("x")
		for range 50 {
			last = MustLock(t, l)
			MustUnlock(t, l)
		}
		Kill(n)
	}
	return last
}

// A directory that is not this member's is refused and not changed.
func TestDirectory_Foreign(t *testing.T) {
	t.Parallel()
	t.Run("group", func(t *testing.T) {
		c := SoloConfig(t)
		last := formed(t, c)
		other := c
		other.Group = "other"
		WantOpenError(t, other, nil, `directory belongs to group "conclave" (want "other")`, "set Config.Group or use another Dir")
		if next := formed(t, c); next <= last {
			t.Errorf("fence %v after %v", next, last)
		}
	})
	t.Run("program", func(t *testing.T) {
		dir := foreignDirectory(t)
		WantOpenError(t, conclave.Config{Dir: dir}, storage.ErrForeign, "holiday.jpg", "choose an empty directory")
		if list, err := os.ReadDir(dir); len(list) != 1 || err != nil {
			t.Errorf("the directory was touched: %v %v", list, err)
		}
	})
	t.Run("kind", func(t *testing.T) {
		file := filepath.Join(foreignDirectory(t), "holiday.jpg")
		WantOpenError(t, conclave.Config{Dir: file}, nil, "is a file: set Dir to a directory")
		if text, err := os.ReadFile(file); string(text) != "a beach" {
			t.Errorf("the file was touched: %q %v", text, err)
		}
	})
	t.Run("version", func(t *testing.T) {
		c := SoloConfig(t)
		formed(t, c)
		if err := os.WriteFile(filepath.Join(c.Dir, "CONCLAVE"), []byte("conclave data directory, format 999\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		WantOpenError(t, c, storage.ErrNewer, "run the version that wrote it")
	})
}

// foreignDirectory returns a directory with a file of another program.
func foreignDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "holiday.jpg"), []byte("a beach"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Damage to any essential file is detected, at each attempt.
func TestDirectory_Damaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]struct {
		files string // a pattern, which must match
		how   func(data []byte) []byte
	}{
		"write-ahead log, a byte":    {"*.log", flipped},
		"write-ahead log, its end":   {"*.log", halved},
		"write-ahead log, all of it": {"*.log", func([]byte) []byte { return nil }},
		"table, a byte":              {"*.sst", flipped},
		"table, its end":             {"*.sst", halved},
		"manifest, a byte":           {"MANIFEST-*", flipped},
		"manifest, all of it":        {"MANIFEST-*", func([]byte) []byte { return nil }},
		"watermark, all of it":       {"WATERMARK", func(data []byte) []byte { return make([]byte, len(data)) }},
		"marker, its text":           {"CONCLAVE", func([]byte) []byte { return []byte("shopping list\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			c := SoloConfig(t)
			formed(t, c)
			spoil(t, filepath.Join(c.Dir, damage.files), damage.how)
			WantOpenError(t, c, conclave.ErrCorrupt, c.Dir)
			WantOpenError(t, c, conclave.ErrCorrupt, c.Dir)
		})
	}
}

// spoil changes every file that matches a pattern.
func spoil(t *testing.T, pattern string, how func(data []byte) []byte) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, how(data), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// flipped returns data with one bit flipped.
func flipped(data []byte) []byte {
	data[len(recorded(data))/3] ^= 0x40
	return data
}

// halved returns data without the second half of what was written.
func halved(data []byte) []byte { return data[:len(recorded(data))/2] }

// recorded returns data without the zeros of a log's reserved space, whose damage has no
// effect.
func recorded(data []byte) []byte { return bytes.TrimRight(data, "\x00") }
