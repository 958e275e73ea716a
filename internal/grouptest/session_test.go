package grouptest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A caller that leaves before its session is opened leaves none behind.
func TestNewSessionLeftByItsCaller(t *testing.T) {
	g := Start(t, 3)
	at := g.Leader()
	n := g.Nodes[at]
	g.Kill((at + 1) % 3)
	g.Kill((at + 2) % 3)
	_, err := n.NewSession(Within(t, 300*time.Millisecond), &conclave.SessionConfig{Name: "left", TTL: conclave.NoTTL, NoChecks: true})
	WantError(t, err, context.DeadlineExceeded)
	if !errors.Is(err, conclave.ErrUnknown) && !errors.Is(err, conclave.ErrUnavailable) {
		t.Fatal(err)
	}
	g.Start((at + 1) % 3)
	MustLock(t, n.FencedLock("x")) // behind whatever was sent before
	for left := true; left; {
		list, err := Collect(n.Sessions(Within(t, 20*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		left = slices.ContainsFunc(list, func(s conclave.SessionInfo) bool { return s.Name == "left" })
	}
}

// A graceful close, after which no lock-delay follows, is for the process that has
// the session. One that was asked for before another process attached the session,
// and comes late, does not end it for that one.
func TestGracefulCloseIsForTheOwner(t *testing.T) {
	g := Start(t, 3)
	s := MustSession(t, g.Nodes[0], &conclave.SessionConfig{TTL: conclave.NoTTL, LockDelay: 30 * time.Second, NoChecks: true})
	l := s.FencedLock("x")
	f := MustLock(t, l)
	if err := g.CloseSessionAsOwner(1, s.ID()); err == nil {
		t.Fatal("a process that does not own the session has closed it gracefully")
	}
	if info, err := l.Info(Within(t, 20*time.Second)); err != nil || info.Fence != f || s.Err() != nil {
		t.Errorf("%+v %v %v", info, err, s.Err())
	}
	Must(t, g.Nodes[1].CloseSession(Within(t, 20*time.Second), s.ID())) // by force it is for anybody
	<-s.Done()
}
