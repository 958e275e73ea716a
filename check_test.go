package conclave_test

import (
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A session can depend on a check that passes or warns. It ends when the check becomes
// critical, and none can be opened while it is.
func TestCheck_States(t *testing.T) {
	n := grouptest.Alone(t)
	c := grouptest.MustCheck(t, n, "disk", 0)
	on := &conclave.SessionConfig{Checks: []string{"gossip", "disk"}}
	s, other := grouptest.MustSession(t, n, on), grouptest.MustSession(t, n, nil)
	grouptest.Must(t, c.Warn(t.Context()))
	warned := grouptest.MustSession(t, n, on)
	grouptest.Must(t, c.Pass(t.Context()))
	if s.Err() != nil || warned.Err() != nil {
		t.Fatal(s.Err(), warned.Err())
	}
	grouptest.Must(t, c.Fail(t.Context()))
	<-s.Done()
	<-warned.Done()
	grouptest.WantError(t, s.Err(), conclave.ErrSessionExpired)
	if other.Err() != nil {
		t.Fatalf("a session that does not depend on the check: %v", other.Err())
	}
	_, err := n.NewSession(t.Context(), on)
	grouptest.WantError(t, err, conclave.ErrCheckCritical)
	grouptest.Must(t, c.Fail(t.Context()))
	grouptest.Must(t, c.Pass(t.Context()))
	grouptest.MustSession(t, n, on)
}

func TestCheck_TTL(t *testing.T) {
	grouptest.InBubble(t, 1, func(g *grouptest.Group) {
		n := g.Nodes[0]
		c := grouptest.MustCheck(g.T, n, "heartbeat", 10*time.Second)
		on := &conclave.SessionConfig{Checks: []string{"heartbeat"}}
		s := grouptest.MustSession(g.T, n, on)
		<-s.Done()
		grouptest.WantError(g.T, s.Err(), conclave.ErrSessionExpired)
		_, err := n.NewSession(g.T.Context(), on)
		grouptest.WantError(g.T, err, conclave.ErrCheckCritical)
		grouptest.Must(g.T, c.Pass(g.T.Context()))
		grouptest.MustSession(g.T, n, on)
	})
}

func TestCheck_RegisteredAgainWithoutTTL(t *testing.T) {
	grouptest.InBubble(t, 1, func(g *grouptest.Group) {
		n := g.Nodes[0]
		grouptest.MustCheck(g.T, n, "heartbeat", 10*time.Second)
		grouptest.MustCheck(g.T, n, "heartbeat", 0)
		s := grouptest.MustSession(g.T, n, &conclave.SessionConfig{Checks: []string{"heartbeat"}})
		select {
		case <-s.Done():
			g.T.Fatal(s.Err())
		case <-time.After(11 * time.Second): // longer than the former TTL
		}
	})
}

func TestCheck_Deregistered(t *testing.T) {
	n := grouptest.Alone(t)
	c := grouptest.MustCheck(t, n, "disk", 0)
	s := grouptest.MustSession(t, n, &conclave.SessionConfig{Checks: []string{"disk"}})
	grouptest.Must(t, c.Deregister(t.Context()))
	<-s.Done()
	for _, err := range []error{c.Pass(t.Context()), c.Warn(t.Context()), c.Fail(t.Context()), c.Deregister(t.Context())} {
		grouptest.WantError(t, err, conclave.ErrInvalid)
	}
	_, err := n.NewSession(t.Context(), &conclave.SessionConfig{Checks: []string{"disk"}})
	grouptest.WantError(t, err, conclave.ErrInvalid)
}

func TestCheck_InvalidArguments(t *testing.T) {
	n := grouptest.Alone(t)
	for _, c := range []struct {
		name string
		ttl  time.Duration
		want error
	}{
		{"gossip", 0, conclave.ErrInvalid},
		{"process", 0, conclave.ErrInvalid},
		{"", 0, conclave.ErrInvalid},
		{"a\x00", 0, conclave.ErrInvalid},
		{strings.Repeat("x", 513), 0, conclave.ErrTooLarge},
		{"x", time.Millisecond, conclave.ErrInvalid},
		{"x", 25 * time.Hour, conclave.ErrInvalid},
		{"x", -1, conclave.ErrInvalid},
	} {
		_, err := n.RegisterCheck(t.Context(), c.name, c.ttl)
		grouptest.WantError(t, err, c.want)
	}
}
