package client

import (
	"errors"
	"testing"
)

// A command that was under way when the group ended may have been applied, and nothing else says so.
func TestExec_GroupEnded(t *testing.T) {
	c, g := newFake(t)
	c.StopRenewing()
	l, err := c.Open(t.Context(), LeaseConfig{TTL: fakeTTL})
	if err != nil {
		t.Fatal(err)
	}
	c.group = endedGroup{g}
	_, err = c.Exec(t.Context(), renewCommand())
	wantEnded(t, "Exec", err)
	_, err = c.Open(t.Context(), LeaseConfig{TTL: NoTTL})
	wantEnded(t, "Open", err)
	_, err = c.CreateSession(t.Context(), LeaseConfig{TTL: NoTTL})
	wantEnded(t, "CreateSession", err)
	wantEnded(t, "Close", l.Close(t.Context()))
}

func wantEnded(t *testing.T, what string, err error) {
	t.Helper()
	if !IsKind(err, Unknown) || !errors.Is(err, errEnded) {
		t.Errorf("%s: %v, want the kind Unknown with the reason", what, err)
	}
}

var errEnded = errors.New("the group has ended")

// endedGroup is a group that ends while a call is under way.
type endedGroup struct{ *fakeGroup }

func (endedGroup) Submit(_ int, _ func() []byte, c Call, _ bool) { c.Fail(errEnded) }
func (endedGroup) Cancel(Call)                                   {}
