package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, options Options) *Store {
	t.Helper()
	s, err := Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t *testing.T, s *Store, key, value string) {
	t.Helper()
	if err := s.Do(func(db *pebble.DB) error { return db.Set([]byte(key), []byte(value), pebble.Sync) }); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s *Store, key string) string {
	t.Helper()
	db, unpin, err := s.Pin()
	if err != nil {
		t.Fatal(err)
	}
	defer unpin()
	value, closer, err := db.Get([]byte(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	return string(value)
}

// writeFile writes a file of the operating system.
func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func listFiles(t *testing.T, dir string) (names []string) {
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

// mutates reports whether an operation modifies a file or a directory.
func mutates(kind errorfs.OpKind) bool {
	return kind.ReadOrWrite() == errorfs.OpIsWrite && kind != errorfs.OpLock
}

// failFrom injects err into every mutation from the one with number at on; 0 is
// never.
type failFrom struct {
	at   int64
	err  error
	seen atomic.Int64
}

func (f *failFrom) MaybeError(op errorfs.Op) error {
	if !mutates(op.Kind) {
		return nil
	}
	if n := f.seen.Add(1); f.at == 0 || n < f.at {
		return nil
	}
	return f.err
}

func (f *failFrom) String() string { return fmt.Sprintf("fail from mutation %d", f.at) }

// writeLoad writes, with flushes and compactions under way, until the store
// fails or all is written. It returns how many writes were acknowledged.
func writeLoad(s *Store) (acknowledged int, err error) {
	const writes = 60
	for i := range writes {
		value := bytes.Repeat([]byte{byte(i)}, 3000)
		err := s.Do(func(db *pebble.DB) error {
			if i%8 == 7 {
				if _, err := db.AsyncFlush(); err != nil {
					return err
				}
			}
			return db.Set(fmt.Appendf(nil, "%06d", i), value, pebble.Sync)
		})
		if err != nil {
			return i, err
		}
	}
	return writes, nil
}

// checkLoad checks that every acknowledged write of writeLoad is present.
func checkLoad(t *testing.T, s *Store, acknowledged int) {
	t.Helper()
	for i := range acknowledged {
		if want := strings.Repeat(string(rune(i)), 3000); get(t, s, fmt.Sprintf("%06d", i)) != want {
			t.Errorf("write %d of %d acknowledged writes is lost", i, acknowledged)
		}
	}
}
