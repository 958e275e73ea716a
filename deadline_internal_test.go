package conclave

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// A session's local deadline is 99 % of the TTL after the opening or renewal was sent,
// however late the answer is: the group may count from then on.
func TestDeadline_CountsFromSend(t *testing.T) {
	const ttl, trusted = 100 * time.Minute, 99 * time.Minute
	n := alone(t)
	o := n.newOpening(SessionConfig{TTL: ttl})
	o.sent -= instant(time.Minute) // the answer is slow
	incarnation := n.member.Status().Incarnation
	reply, err := n.exec(t.Context(), o.command())
	if err != nil {
		t.Fatal(err)
	}
	s, err := o.answered(answer{reply: reply, incarnation: incarnation})
	if err != nil {
		t.Fatal(err)
	}
	deadline := func() instant {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.deadline
	}
	if got, want := deadline(), o.sent+instant(trusted); got != want {
		t.Errorf("opened: trusted for %v after it was sent, want %v", time.Duration(got-o.sent), trusted)
	}
	sent := n.clock.now() - instant(30*time.Second)
	n.renewal.acknowledged(sent, answer{reply: &wire.Reply{Code: wire.Code_OK}, incarnation: incarnation})
	if got, want := deadline(), sent+instant(trusted); got != want {
		t.Errorf("renewed: trusted for %v after it was sent, want %v", time.Duration(got-sent), trusted)
	}
}

// All holds of a session are lost with it at once, without an answer of the group.
func TestLost_ClosedWithSession(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, lasting())
	l := s.FencedLock("x")
	mustLock(t, l)
	lost := l.Lost()
	s.end(ErrSessionExpired)
	select {
	case <-lost:
	default:
		t.Error("Lost is not closed")
	}
	_, err := l.Fence()
	wantError(t, err, ErrLockOwnershipLost)
}

// A process that was stopped finds that the deadline has passed before a timer runs.
func TestFence_ChecksDeadlineItself(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, &SessionConfig{TTL: time.Hour, LockDelay: NoLockDelay, Checks: NoChecks})
	l := s.FencedLock("x")
	mustLock(t, l)
	s.mu.Lock()
	s.deadline = n.clock.now() // the timer is an hour away
	s.mu.Unlock()
	_, err := l.Fence()
	wantError(t, err, ErrLockOwnershipLost)
	wantError(t, s.Err(), ErrSessionExpired)
}

// A caller that abandons Lock before any outcome owes no Unlock: a later grant is
// released.
func TestLock_GrantedAfterAbandoned(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, lasting())
	l := s.FencedLock("x")
	a, why := newAcquisition(l, s), errors.New("no more patience")
	if err := a.leave(why); !errors.Is(err, why) {
		t.Fatal(err)
	}
	n.member.Submit(encode(&wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
		Name: l.name, Session: s.id[:], Handle: l.handle, Wait: true,
	}}}), a, false)
	if f, err := s.FencedLock("x").Lock(within(t, 10*time.Second)); err != nil || f < 2 {
		t.Fatalf("fence %v, want the second: %v", f, err)
	}
	if l.Holds() != 0 {
		t.Error("the abandoned handle holds the lock")
	}
}

// Renew moves the deadlines of all sessions of the process.
func TestRenew_AllSessionsOfProcess(t *testing.T) {
	n := alone(t)
	a, b := mustSession(t, n, nil), mustSession(t, n, nil)
	deadline := func(s *Session) instant {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.deadline
	}
	before, called := deadline(b), n.clock.now()
	if err := a.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Session{a, b} {
		if got := deadline(s); got < before || got < called+instant(trusted(s.ttl)) {
			t.Fatalf("deadline %v, before %v, called at %v", got, before, called)
		}
	}
	wantError(t, a.Renew(expired), context.Canceled)
	if err := mustSession(t, n, lasting()).Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A session that is acknowledged later than its TTL has expired.
func TestSession_AcknowledgedAfterTTL(t *testing.T) {
	n := alone(t)
	s := newSession(n, wire.ID{1}, wire.ID{2}, time.Second, n.clock.now()-instant(time.Minute))
	<-s.Done()
	wantError(t, s.Err(), ErrSessionExpired)
}
