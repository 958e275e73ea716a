package client

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/internal/tickets"
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

// A release that waits when the registration of this process has expired returns that the hold was lost, and never that its outcome is unknown.
func TestRelease_RegistrationExpires(t *testing.T) {
	for range 50 { // the end of the lease is noticed as well
		c, g := newFake(t)
		c.StopRenewing()
		l := newLock(c, mustOpen(t, c, fakeTTL), "x")
		mustAcquire(t, l)
		g.hold()
		released := make(chan error, 1)
		go func() { released <- l.Release(t.Context(), nil) }()
		g.awaitQueued()
		var waiting Call
		g.set(func() { waiting, g.queue = g.queue[0].call, nil })
		c.leases.unbindAll(g.incarnation)
		waiting.Fail(tickets.ErrUnregistered)
		wantKind(t, <-released, Lost)
	}
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
