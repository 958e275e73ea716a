package grouptest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// An abandoned NewSession leaves no session behind.
func TestSession_OpeningAbandoned(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	at := g.Leader()
	n := g.Nodes[at]
	g.Kill((at + 1) % 3)
	g.Kill((at + 2) % 3)
	_, err := n.NewSession(Within(t, 300*time.Millisecond), &conclave.SessionConfig{Name: "abandoned", TTL: conclave.NoTTL, NoChecks: true})
	WantError(t, err, context.DeadlineExceeded)
	if !errors.Is(err, conclave.ErrUnknown) && !errors.Is(err, conclave.ErrUnavailable) {
		t.Fatal(err)
	}
	g.Start((at + 1) % 3)
	MustLock(t, n.FencedLock("x")) // after whatever was sent before
	for left := true; left; Pass(time.Millisecond) {
		list, err := Collect(n.Sessions(Bounded(t)))
		if err != nil {
			t.Fatal(err)
		}
		left = slices.ContainsFunc(list, func(s conclave.SessionInfo) bool { return s.Name == "abandoned" })
	}
}

// Only the process that a session is bound to can close it gracefully, without the
// lock-delay. A late close of a former process does not end it for the present one.
func TestSession_GracefulCloseByOtherProcess(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	s := MustSession(t, g.Nodes[0], &conclave.SessionConfig{TTL: conclave.NoTTL, LockDelay: 30 * time.Second, NoChecks: true})
	l := s.FencedLock("x")
	f := MustLock(t, l)
	if err := g.CloseSessionAsOwner(1, s.ID()); err == nil {
		t.Fatal("a process that does not own the session has closed it gracefully")
	}
	if info, err := l.Info(Bounded(t)); err != nil || info.Fence != f || s.Err() != nil {
		t.Errorf("%+v %v %v", info, err, s.Err())
	}
	Must(t, g.Nodes[1].CloseSession(Bounded(t), s.ID())) // any process may close it by force
	<-s.Done()
}
