package conclave

import (
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// A holder trusts its session for 99 % of the TTL from when the opening or the
// renewal was sent, however late the group's answer comes: the group may have
// begun to count then.
func TestTheDeadlineCountsFromTheSending(t *testing.T) {
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

// Everybody who holds by a session knows that it has ended when its end is known
// here: it is not left to what the group says later.
func TestLostIsClosedWithTheSession(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, lasting())
	l := s.FencedLock("x")
	mustLock(t, l)
	lost := l.Lost()
	s.end(ErrSessionExpired)
	select {
	case <-lost:
	default:
		t.Error("Lost is open")
	}
	_, err := l.Fence()
	wantError(t, err, ErrLockOwnershipLost)
}

// A process that was stopped finds its deadline passed before any timer has run.
func TestAHolderLooksAtTheClockItself(t *testing.T) {
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

// A caller that leaves before there was any outcome does not have to unlock: a
// grant that comes then is given back.
func TestAGrantAfterItsCallerHasLeft(t *testing.T) {
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
		t.Error("the handle of the caller that has left holds the lock")
	}
}
