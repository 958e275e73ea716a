package conclave

import (
	"strings"
	"testing"
	"time"
)

func mustCheck(t *testing.T, n *Node, name string, ttl time.Duration) *Check {
	t.Helper()
	c, err := n.RegisterCheck(within(t, 20*time.Second), name, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A session can depend on a check that passes or warns; it ends when the check
// becomes critical, and no other can be opened until it is not.
func TestCheckStates(t *testing.T) {
	n := alone(t)
	c := mustCheck(t, n, "disk", 0)
	on := &SessionConfig{Checks: []string{"gossip", "disk"}}
	s, other := mustSession(t, n, on), mustSession(t, n, nil)
	must(t, c.Warn(t.Context()))
	warned := mustSession(t, n, on)
	must(t, c.Pass(t.Context()))
	if s.Err() != nil || warned.Err() != nil {
		t.Fatal(s.Err(), warned.Err())
	}
	must(t, c.Fail(t.Context()))
	<-s.Done()
	<-warned.Done()
	wantError(t, s.Err(), ErrSessionExpired)
	if other.Err() != nil {
		t.Fatalf("a session that does not depend on the check: %v", other.Err())
	}
	_, err := n.NewSession(t.Context(), on)
	wantError(t, err, ErrCheckCritical)
	must(t, c.Fail(t.Context()))
	must(t, c.Pass(t.Context()))
	mustSession(t, n, on)
}

func TestCheckTTL(t *testing.T) {
	n := alone(t)
	c := mustCheck(t, n, "heartbeat", time.Second)
	on := &SessionConfig{Checks: []string{"heartbeat"}}
	s := mustSession(t, n, on)
	<-s.Done()
	wantError(t, s.Err(), ErrSessionExpired)
	_, err := n.NewSession(t.Context(), on)
	wantError(t, err, ErrCheckCritical)
	must(t, c.Pass(t.Context()))
	mustSession(t, n, on)
	mustCheck(t, n, "heartbeat", 0) // taken over, now without a TTL
	s = mustSession(t, n, on)
	select {
	case <-s.Done():
		t.Fatal(s.Err())
	case <-time.After(1500 * time.Millisecond): // the TTL that the check had has to pass
	}
}

func TestCheckDeregistered(t *testing.T) {
	n := alone(t)
	c := mustCheck(t, n, "disk", 0)
	s := mustSession(t, n, &SessionConfig{Checks: []string{"disk"}})
	must(t, c.Deregister(t.Context()))
	<-s.Done()
	for _, err := range []error{c.Pass(t.Context()), c.Warn(t.Context()), c.Fail(t.Context()), c.Deregister(t.Context())} {
		wantError(t, err, ErrInvalid)
	}
	_, err := n.NewSession(t.Context(), &SessionConfig{Checks: []string{"disk"}})
	wantError(t, err, ErrInvalid)
}

// A check belongs to the member: it outlives the process, in the state that it
// had, and is of no use to other members.
func TestCheckOutlivesItsProcess(t *testing.T) {
	g := group(t, 3, nil)
	failed := mustCheck(t, g.nodes[0], "failed", 0)
	must(t, failed.Fail(t.Context()))
	mustCheck(t, g.nodes[0], "passing", 0)
	g.kill(0)
	g.start(0)
	mustSession(t, g.nodes[0], &SessionConfig{Checks: []string{"passing"}})
	_, err := g.nodes[0].NewSession(t.Context(), &SessionConfig{Checks: []string{"failed"}})
	wantError(t, err, ErrCheckCritical)
	_, err = g.nodes[1].NewSession(t.Context(), &SessionConfig{Checks: []string{"passing"}})
	wantError(t, err, ErrInvalid)
	mustCheck(t, g.nodes[0], "failed", 0) // registering counts as passing
	mustSession(t, g.nodes[0], &SessionConfig{Checks: []string{"failed"}})
}

func TestCheckArguments(t *testing.T) {
	n := alone(t)
	for _, c := range []struct {
		name string
		ttl  time.Duration
		want error
	}{
		{"gossip", 0, ErrInvalid},
		{"", 0, ErrInvalid},
		{"a\x00", 0, ErrInvalid},
		{strings.Repeat("x", 513), 0, ErrTooLarge},
		{"x", time.Millisecond, ErrInvalid},
		{"x", 25 * time.Hour, ErrInvalid},
		{"x", -1, ErrInvalid},
	} {
		_, err := n.RegisterCheck(t.Context(), c.name, c.ttl)
		wantError(t, err, c.want)
	}
}
