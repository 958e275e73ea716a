package storage

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// A failure on any goroutine of the database makes the result of whatever was
// under way worthless, also a success.
func TestNoResultIsTrustedAfterAFailure(t *testing.T) {
	s := open(t, Options{Inline: true})
	lost := errors.New("a disk is gone")
	s.Go(func(*pebble.DB) error {
		s.guard.fail(lost)
		return nil
	}, func(err error) { t.Errorf("reported as done: %v", err) })
	if !errors.Is(s.Err(), lost) {
		t.Fatal(s.Err())
	}
}
