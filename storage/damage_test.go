package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A table is damaged while the database is open. Reading from it returns an
// error that Pebble marks as corruption, and never a wrong value; the store fails
// with that error.
func TestDamage_TableWhileOpenFailsStore(t *testing.T) {
	for _, damage := range []struct {
		name string
		do   func(content []byte)
	}{
		{"a bit of each block", func(c []byte) {
			for i := 100; i < len(c)-1000; i += 500 {
				c[i] ^= 4
			}
		}},
		{"zeroed", func(c []byte) { clear(c[:len(c)-1000]) }},
	} {
		t.Run(damage.name, func(t *testing.T) {
			disk := vfs.NewMem()
			s := open(t, Options{FS: disk})
			for i := range 20 {
				put(t, s, fmt.Sprint("key-", i), strings.Repeat(fmt.Sprint(i), 900))
			}
			if err := s.Do(func(db *pebble.DB) error { return db.Flush() }); err != nil {
				t.Fatal(err)
			}
			damageTables(t, disk, damage.do)
			err := readAll(t, s)
			<-s.Failed()
			for _, err := range []error{err, s.Err()} {
				if !pebble.IsCorruptionError(err) && !errors.Is(err, ErrCorrupt) {
					t.Errorf("%v", err)
				}
			}
			if err := s.Do(func(*pebble.DB) error { return nil }); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Do after the failure: %v", err)
			}
		})
	}
}

// damageTables modifies the tables in place, under the open database.
func damageTables(t *testing.T, disk *vfs.MemFS, damage func([]byte)) {
	t.Helper()
	names, err := disk.List("/conclave")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		file, err := disk.OpenReadWrite("/conclave/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		content = bytes.Clone(content)
		damage(content)
		if _, err := file.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
}

// readAll reads all keys and returns the first error.
func readAll(t *testing.T, s *Store) error {
	t.Helper()
	db, unpin, err := s.Pin()
	if err != nil {
		t.Fatal(err)
	}
	defer unpin()
	for i := range 20 {
		value, closer, err := db.Get([]byte(fmt.Sprint("key-", i)))
		if err != nil {
			return err
		}
		if want := strings.Repeat(fmt.Sprint(i), 900); string(value) != want {
			t.Errorf("key-%d is %.20q", i, value)
		}
		closer.Close()
	}
	return nil
}
