package storage

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

func TestStore_ReopenReadsWhatWasWritten(t *testing.T) {
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

func TestStore_ClosedRefusesWork(t *testing.T) {
	s := open(t, Options{})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Do(func(*pebble.DB) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("Do = %v, want ErrClosed", err)
	}
	if _, _, err := s.Pin(); !errors.Is(err, ErrClosed) {
		t.Errorf("Pin = %v, want ErrClosed", err)
	}
	s.Go(func(*pebble.DB) error { t.Error("work ran after Close"); return nil }, func(error) {})
}

func TestStore_RunsWorkInSubmissionOrder(t *testing.T) {
	s := open(t, Options{})
	var order []int
	for i := range 100 {
		s.Go(func(*pebble.DB) error { order = append(order, i); return nil }, func(error) {})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(order) != 100 {
		t.Fatalf("%d of 100 tasks ran", len(order))
	}
	for i, got := range order {
		if i != got {
			t.Fatalf("order %v", order)
		}
	}
}

// A function that panics, and a database that is used after that, are closed all the same:
// TestMain finds what is left.
func TestStore_OnClosePanics(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	ran := false
	s.OnClose(func() error { panic("of a hook") })
	s.OnClose(func() error { ran = true; return nil })
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "panic: of a hook") || !ran {
		t.Errorf("Close returned %v; the next function ran: %t", err, ran)
	}
	open(t, Options{Dir: s.Dir()})
}

func TestStore_OnCloseRunsAfterAllWork(t *testing.T) {
	var order []string
	failed := errors.New("close of a file beside the database failed")
	s := open(t, Options{})
	s.Go(func(*pebble.DB) error { order = append(order, "work"); return nil }, func(error) {})
	s.OnClose(func() error { order = append(order, "close"); return failed })
	if err := s.Close(); !errors.Is(err, failed) {
		t.Errorf("Close = %v", err)
	}
	if !slices.Equal(order, []string{"work", "close"}) {
		t.Errorf("order %v", order)
	}
}

// A panic in a task fails the store, not the process.
func TestStore_PanicInTaskFailsStore(t *testing.T) {
	s := open(t, Options{})
	err := s.Do(func(*pebble.DB) error { panic("boom") })
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("Do = %v", err)
	}
	s.Close()
}

// What is submitted while work is gathered runs when the caller has it run, in order.
func TestStore_Gather(t *testing.T) {
	s := open(t, Options{Inline: true})
	var ran []int
	submit := func(n int) {
		s.Go(func(*pebble.DB) error { ran = append(ran, n); return nil }, func(error) { ran = append(ran, -n) })
	}
	tasks := s.Gather(func() { submit(1); submit(2) })
	submit(3)
	for _, task := range tasks {
		task()
	}
	if want := []int{3, -3, 1, -1, 2, -2}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}
