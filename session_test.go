package conclave

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// lasting is a session that ends by nothing but a close.
func lasting() *SessionConfig {
	return &SessionConfig{TTL: NoTTL, LockDelay: NoLockDelay, Checks: NoChecks}
}

func mustSession(t testing.TB, n *Node, cfg *SessionConfig) *Session {
	t.Helper()
	s, err := n.NewSession(within(t, 20*time.Second), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mustInfo is the session as a node has it; ok is false when it has ended.
func mustInfo(t testing.TB, n *Node, id SessionID) (info SessionInfo, ok bool) {
	t.Helper()
	list, err := n.Sessions(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(s SessionInfo) bool { return s.ID == id })
	if i < 0 {
		return SessionInfo{}, false
	}
	return list[i], true
}

// awaitEnded blocks until the group does not know the session any more.
func awaitEnded(t testing.TB, n *Node, id SessionID) {
	t.Helper()
	for {
		if _, ok := mustInfo(t, n, id); !ok {
			return
		}
	}
}

func TestSessionAsConfigured(t *testing.T) {
	n := alone(t)
	id := n.Status().ID
	for name, c := range map[string]struct {
		cfg  *SessionConfig
		want SessionInfo
	}{
		"defaults": {nil, SessionInfo{TTL: 10 * time.Second, LockDelay: 15 * time.Second, Checks: []string{"gossip"}}},
		"no TTL":   {lasting(), SessionInfo{TTL: NoTTL}},
		"all set": {
			&SessionConfig{Name: "mine", TTL: time.Hour, LockDelay: time.Minute, Behavior: Delete, Checks: []string{"gossip"}},
			SessionInfo{Name: "mine", TTL: time.Hour, LockDelay: time.Minute, Behavior: Delete, Checks: []string{"gossip"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustSession(t, n, c.cfg)
			got, ok := mustInfo(t, n, s.ID())
			if !ok || got.CreateIndex == 0 || got.Node != id || (got.Remaining > 0) != (got.TTL != NoTTL) {
				t.Fatalf("%v %+v", ok, got)
			}
			if got.Name != c.want.Name || got.TTL != c.want.TTL || got.LockDelay != c.want.LockDelay ||
				got.Behavior != c.want.Behavior || !slices.Equal(got.Checks, c.want.Checks) {
				t.Fatalf("%+v; want %+v", got, c.want)
			}
		})
	}
}

func TestSessionConfigIsChecked(t *testing.T) {
	n := alone(t)
	long := strings.Repeat("x", 513)
	for name, c := range map[string]struct {
		cfg  SessionConfig
		want error
	}{
		"long name":        {SessionConfig{Name: long}, ErrTooLarge},
		"NUL in the name":  {SessionConfig{Name: "a\x00"}, ErrInvalid},
		"short TTL":        {SessionConfig{TTL: time.Millisecond}, ErrInvalid},
		"long TTL":         {SessionConfig{TTL: 25 * time.Hour}, ErrInvalid},
		"negative TTL":     {SessionConfig{TTL: -2}, ErrInvalid},
		"long delay":       {SessionConfig{LockDelay: 61 * time.Second}, ErrInvalid},
		"negative delay":   {SessionConfig{LockDelay: -2}, ErrInvalid},
		"behavior":         {SessionConfig{Behavior: 7}, ErrInvalid},
		"too many checks":  {SessionConfig{Checks: make([]string, 17)}, ErrTooLarge},
		"empty check":      {SessionConfig{Checks: []string{""}}, ErrInvalid},
		"long check":       {SessionConfig{Checks: []string{long}}, ErrTooLarge},
		"check twice":      {SessionConfig{Checks: []string{"gossip", "gossip"}}, ErrInvalid},
		"unknown check":    {SessionConfig{Checks: []string{"unheard of"}}, ErrInvalid},
		"two faults":       {SessionConfig{TTL: 1, Behavior: 7}, ErrInvalid},
		"everything wrong": {SessionConfig{Name: long, TTL: 1}, ErrTooLarge},
	} {
		_, err := n.NewSession(t.Context(), &c.cfg)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		wantError(t, err, c.want)
	}
	if list, err := n.Sessions(t.Context()); len(list) != 0 || err != nil {
		t.Fatal(list, err)
	}
}

// Close tells the holders here, hands everything on at once although the session
// has a lock-delay, and may be called again.
func TestSessionClose(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, &SessionConfig{LockDelay: time.Minute})
	l := s.FencedLock("x")
	p, err := s.Semaphore("permits", 1).Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	f := mustLock(t, l)
	lost := l.Lost()
	for range 3 {
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	<-s.Done()
	<-lost
	<-p.Lost()
	wantError(t, s.Err(), ErrSessionExpired)
	wantError(t, s.Renew(t.Context()), ErrSessionExpired)
	if next, err := n.FencedLock("x").TryLock(t.Context()); err != nil || next <= f {
		t.Fatal(next, err)
	}
	if _, err := n.Semaphore("permits", 1).TryAcquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	_, err = l.Lock(t.Context())
	wantError(t, err, ErrLockOwnershipLost)
	wantError(t, l.Unlock(t.Context()), ErrLockOwnershipLost)
	_, err = l.Lock(t.Context())
	wantError(t, err, ErrSessionExpired)
	_, err = s.Semaphore("permits", 1).Acquire(t.Context(), 1)
	wantError(t, err, ErrSessionExpired)
	_, err = s.Election("e").Campaign(t.Context(), nil)
	wantError(t, err, ErrSessionExpired)
}

func TestSessionCloseIsPursuedWithoutItsContext(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, &SessionConfig{LockDelay: time.Minute})
	mustLock(t, s.FencedLock("x"))
	if err := s.Close(expired); err != nil {
		wantError(t, err, context.Canceled)
		wantError(t, err, ErrUnknown)
	}
	mustLock(t, n.FencedLock("x"))
}

// A session of a program's own is not replaced, and those of a node do not hold
// for one another.
func TestSessionsOfOneNodeAreApart(t *testing.T) {
	n := alone(t)
	a, b := mustSession(t, n, nil), mustSession(t, n, nil)
	mustLock(t, a.FencedLock("x"))
	_, err := b.FencedLock("x").TryLock(t.Context())
	wantError(t, err, ErrLocked)
	_, err = n.FencedLock("x").TryLock(t.Context())
	wantError(t, err, ErrLocked)
	if err := n.CloseSession(t.Context(), b.ID()); err != nil {
		t.Fatal(err)
	}
	<-b.Done()
	wantError(t, b.Err(), ErrSessionExpired)
	if err := b.Close(t.Context()); err != nil {
		t.Fatalf("closing what has ended: %v", err)
	}
	if a.Err() != nil {
		t.Fatal(a.Err())
	}
}

// The node renews by the smallest TTL, also when that comes later than the
// renewal that it had planned.
func TestRenewalFollowsTheSmallestTTL(t *testing.T) {
	n := alone(t)
	long := mustSession(t, n, &SessionConfig{TTL: time.Hour})
	short := mustSession(t, n, &SessionConfig{TTL: time.Second})
	select {
	case <-short.Done():
		t.Fatal(short.Err())
	case <-time.After(1300 * time.Millisecond): // the session has to outlive its TTL
	}
	if long.Err() != nil || short.Err() != nil {
		t.Fatal(long.Err(), short.Err())
	}
}

// Renew moves the deadlines of all sessions of the process.
func TestRenew(t *testing.T) {
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

// A caller that leaves before its session is opened leaves none behind.
func TestNewSessionLeftByItsCaller(t *testing.T) {
	g := group(t, 3, nil)
	at := g.leader()
	n := g.nodes[at]
	g.kill((at + 1) % 3)
	g.kill((at + 2) % 3)
	_, err := n.NewSession(within(t, 300*time.Millisecond), &SessionConfig{Name: "left", TTL: NoTTL, Checks: NoChecks})
	wantError(t, err, context.DeadlineExceeded)
	if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	g.start((at + 1) % 3)
	mustLock(t, n.FencedLock("x")) // behind whatever was sent before
	for left := true; left; {
		list, err := n.Sessions(within(t, 20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		left = slices.ContainsFunc(list, func(s SessionInfo) bool { return s.Name == "left" })
	}
}

// What was opened before a snapshot and is heard of after it may have ended in
// between. It is not relied upon, and not left behind.
func TestSessionOvertakenByASnapshot(t *testing.T) {
	n := alone(t)
	cfg, err := lasting().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	o := n.newOpening(cfg)
	reply, err := n.exec(t.Context(), o.command())
	if err != nil || reply.GetCode() != wire.Code_OK {
		t.Fatal(reply, err)
	}
	n.restores.Add(1)
	if s, err := o.answered(answer{reply: reply, incarnation: n.member.Status().Incarnation}); s != nil || !errors.Is(err, errOpenAgain) {
		t.Fatal(s, err)
	}
	awaitEnded(t, n, SessionID(o.id))
}

func TestSessionsAfterClose(t *testing.T) {
	n := alone(t)
	s, kept := mustSession(t, n, nil), mustSession(t, n, lasting())
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	<-kept.Done()
	wantError(t, s.Err(), ErrClosed)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantError(t, kept.Close(t.Context()), ErrClosed) // it lives on in the group
	_, err := n.NewSession(t.Context(), nil)
	wantError(t, err, ErrClosed)
	_, err = n.AttachSession(t.Context(), kept.ID())
	wantError(t, err, ErrClosed)
	_, err = n.RegisterCheck(t.Context(), "disk", 0)
	wantError(t, err, ErrClosed)
	_, err = n.Semaphore("x", 1).Acquire(t.Context(), 1)
	wantError(t, err, ErrClosed)
	wantError(t, n.Semaphore("x", 1).Resize(t.Context(), 1), ErrClosed)
	_, err = n.Election("x").Campaign(t.Context(), nil)
	wantError(t, err, ErrClosed)
}
