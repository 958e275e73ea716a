package main

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave"
)

func mustOpen(t *testing.T, s store, fence conclave.Fence, owner string) *counter {
	t.Helper()
	c, err := s.open(3, fence, owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// The store refuses what a former owner writes once the next one has begun, and the value is that of the writes that counted.
func TestStore_RefusesFormerOwners(t *testing.T) {
	s := store{t.TempDir()}
	former := mustOpen(t, s, 7, "anna")
	for range 3 {
		if err := former.increase(); err != nil {
			t.Fatal(err)
		}
	}
	next := mustOpen(t, s, 9, "ben")
	if next.value != 3 {
		t.Errorf("the next owner begins at %d, want 3", next.value)
	}
	if err := former.increase(); !errors.Is(err, conclave.ErrStaleFence) {
		t.Errorf("a write of the former owner: %v, want ErrStaleFence", err)
	}
	if err := next.increase(); err != nil || next.value != 4 {
		t.Errorf("value %d, %v, want 4", next.value, err)
	}
	if _, err := s.open(3, 8, "clara"); !errors.Is(err, conclave.ErrStaleFence) {
		t.Errorf("an ownership before the latest: %v, want ErrStaleFence", err)
	}
	if c := mustOpen(t, s, 10, "anna"); c.value != 4 {
		t.Errorf("the last owner begins at %d, want 4", c.value)
	}
}
