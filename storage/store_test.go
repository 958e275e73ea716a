package storage

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

func put(t *testing.T, s *Store, key, value string) {
	t.Helper()
	if err := s.Do(func(db *pebble.DB) error { return db.Set([]byte(key), []byte(value), pebble.Sync) }); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s *Store, key string) string {
	t.Helper()
	db, giveBack, err := s.Borrow()
	if err != nil {
		t.Fatal(err)
	}
	defer giveBack()
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

func open(t *testing.T, options Options) *Store {
	t.Helper()
	s, err := Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestWhatWasWrittenIsThereAfterReopening(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	put(t, s, "a", "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := get(t, open(t, Options{Dir: dir}), "a"); got != "1" {
		t.Errorf("a = %q after reopening, want 1", got)
	}
}

func TestNothingWorksAfterClose(t *testing.T) {
	s := open(t, Options{})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Do(func(*pebble.DB) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("Do = %v, want ErrClosed", err)
	}
	if _, _, err := s.Borrow(); !errors.Is(err, ErrClosed) {
		t.Errorf("Borrow = %v, want ErrClosed", err)
	}
	s.Go(func(*pebble.DB) error { t.Error("work ran after Close"); return nil }, func(error) {})
}

func TestWorkIsDoneInTheOrderItWasHandedIn(t *testing.T) {
	s := open(t, Options{})
	var order []int
	for i := range 100 {
		s.Go(func(*pebble.DB) error { order = append(order, i); return nil }, func(error) {})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(order) != 100 {
		t.Fatalf("%d of 100 were done", len(order))
	}
	for i, got := range order {
		if i != got {
			t.Fatalf("order %v", order)
		}
	}
}
