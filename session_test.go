package conclave_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestSession_Config(t *testing.T) {
	n := grouptest.Alone(t)
	id := n.Status().ID
	for name, c := range map[string]struct {
		cfg  *conclave.SessionConfig
		want conclave.SessionInfo
	}{
		"defaults": {nil, conclave.SessionInfo{TTL: 10 * time.Second, LockDelay: 15 * time.Second, Checks: []string{"gossip"}}},
		"no TTL":   {grouptest.Lasting(), conclave.SessionInfo{TTL: conclave.NoTTL}},
		"all set": {
			&conclave.SessionConfig{Name: "mine", TTL: time.Hour, LockDelay: time.Minute, Behavior: conclave.DeleteKeys, Checks: []string{"gossip"}},
			conclave.SessionInfo{Name: "mine", TTL: time.Hour, LockDelay: time.Minute, Behavior: conclave.DeleteKeys, Checks: []string{"gossip"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := grouptest.MustSession(t, n, c.cfg)
			got, ok := grouptest.FindSession(t, n, s.ID())
			if !ok || got.CreateIndex == 0 || got.Node != id || (got.Remaining > 0) != (got.TTL != conclave.NoTTL) {
				t.Fatalf("%v %+v", ok, got)
			}
			if got.Name != c.want.Name || got.TTL != c.want.TTL || got.LockDelay != c.want.LockDelay ||
				got.Behavior != c.want.Behavior || !slices.Equal(got.Checks, c.want.Checks) {
				t.Fatalf("%+v; want %+v", got, c.want)
			}
		})
	}
}

func TestSession_InvalidConfig(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		long := strings.Repeat("x", 513)
		for name, c := range map[string]struct {
			cfg  conclave.SessionConfig
			want error
		}{
			"long name":        {conclave.SessionConfig{Name: long}, conclave.ErrTooLarge},
			"NUL in the name":  {conclave.SessionConfig{Name: "a\x00"}, conclave.ErrInvalid},
			"short TTL":        {conclave.SessionConfig{TTL: time.Millisecond}, conclave.ErrInvalid},
			"long TTL":         {conclave.SessionConfig{TTL: 25 * time.Hour}, conclave.ErrInvalid},
			"negative TTL":     {conclave.SessionConfig{TTL: -2}, conclave.ErrInvalid},
			"long delay":       {conclave.SessionConfig{LockDelay: 61 * time.Second}, conclave.ErrInvalid},
			"negative delay":   {conclave.SessionConfig{LockDelay: -2}, conclave.ErrInvalid},
			"behavior":         {conclave.SessionConfig{Behavior: 7}, conclave.ErrInvalid},
			"too many checks":  {conclave.SessionConfig{Checks: make([]string, 17)}, conclave.ErrTooLarge},
			"empty check":      {conclave.SessionConfig{Checks: []string{""}}, conclave.ErrInvalid},
			"long check":       {conclave.SessionConfig{Checks: []string{long}}, conclave.ErrTooLarge},
			"check twice":      {conclave.SessionConfig{Checks: []string{"gossip", "gossip"}}, conclave.ErrInvalid},
			"unknown check":    {conclave.SessionConfig{Checks: []string{"not registered"}}, conclave.ErrInvalid},
			"two faults":       {conclave.SessionConfig{TTL: 1, Behavior: 7}, conclave.ErrInvalid},
			"everything wrong": {conclave.SessionConfig{Name: long, TTL: 1}, conclave.ErrTooLarge},
		} {
			_, err := n.NewSession(t.Context(), &c.cfg)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			grouptest.WantError(t, err, c.want)
		}
		if list, err := grouptest.Collect(n.Sessions(t.Context())); len(list) != 0 || err != nil {
			t.Fatal(list, err)
		}
	})
}

// Close notifies the holders in this process and releases at once, without the
// session's lock-delay. It may be called again.
func TestSession_Close(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := grouptest.MustSession(t, n, &conclave.SessionConfig{LockDelay: time.Minute})
		l := s.FencedLock("x")
		p, err := s.Semaphore("permits", 1).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		f := grouptest.MustLock(t, l)
		lost := l.Lost()
		for range 3 {
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		<-s.Done()
		<-lost
		<-p.Lost()
		grouptest.WantError(t, s.Err(), conclave.ErrSessionExpired)
		grouptest.WantError(t, s.Renew(t.Context()), conclave.ErrSessionExpired)
		if next, err := n.FencedLock("x").TryLock(t.Context()); err != nil || next <= f {
			t.Fatal(next, err)
		}
		if _, err := n.Semaphore("permits", 1).TryAcquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		_, err = l.Lock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
		grouptest.WantError(t, l.Unlock(t.Context()), conclave.ErrLockOwnershipLost)
		_, err = l.Lock(t.Context())
		grouptest.WantError(t, err, conclave.ErrSessionExpired)
		_, err = s.Semaphore("permits", 1).Acquire(t.Context(), 1)
		grouptest.WantError(t, err, conclave.ErrSessionExpired)
		_, err = s.Election("e").Campaign(t.Context(), nil)
		grouptest.WantError(t, err, conclave.ErrSessionExpired)
	})
}

func TestSession_CloseContextEndedBefore(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := grouptest.MustSession(t, n, &conclave.SessionConfig{LockDelay: time.Minute})
		grouptest.MustLock(t, s.FencedLock("x"))
		if err := s.Close(grouptest.Expired()); err != nil {
			grouptest.WantError(t, err, context.Canceled)
			grouptest.WantError(t, err, conclave.ErrUnknown)
		}
		grouptest.MustLock(t, n.FencedLock("x"))
	})
}

// Sessions of one node exclude one another, and an opened session is not replaced.
func TestSession_TwoOfOneNode(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		a, b := grouptest.MustSession(t, n, nil), grouptest.MustSession(t, n, nil)
		grouptest.MustLock(t, a.FencedLock("x"))
		_, err := b.FencedLock("x").TryLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLocked)
		_, err = n.FencedLock("x").TryLock(t.Context())
		grouptest.WantError(t, err, conclave.ErrLocked)
		if err := n.CloseSession(t.Context(), b.ID()); err != nil {
			t.Fatal(err)
		}
		<-b.Done()
		grouptest.WantError(t, b.Err(), conclave.ErrSessionExpired)
		if err := b.Close(t.Context()); err != nil {
			t.Fatalf("Close of an ended session: %v", err)
		}
		if a.Err() != nil {
			t.Fatal(a.Err())
		}
	})
}

// The node renews by the smallest TTL, also when that session is opened after the
// next renewal was scheduled.
func TestSession_RenewedBySmallestTTL(t *testing.T) {
	grouptest.InBubble(t, 1, func(g *grouptest.Group) {
		n := g.Nodes[0]
		long := grouptest.MustSession(g.T, n, &conclave.SessionConfig{TTL: time.Hour})
		grouptest.Pass(time.Second)
		short := grouptest.MustSession(g.T, n, &conclave.SessionConfig{TTL: 10 * time.Second})
		select {
		case <-short.Done():
			g.T.Fatal(short.Err())
		case <-time.After(11 * time.Second): // the session has to outlive its TTL
		}
		if long.Err() != nil || short.Err() != nil {
			g.T.Fatal(long.Err(), short.Err())
		}
	})
}

func TestSession_AfterNodeClose(t *testing.T) {
	n := grouptest.Alone(t)
	s, kept := grouptest.MustSession(t, n, nil), grouptest.MustSession(t, n, grouptest.Lasting())
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	<-kept.Done()
	grouptest.WantError(t, s.Err(), conclave.ErrClosed)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	grouptest.WantError(t, kept.Close(t.Context()), conclave.ErrClosed) // it stays alive in the group
	_, err := n.NewSession(t.Context(), nil)
	grouptest.WantError(t, err, conclave.ErrClosed)
	_, err = n.AttachSession(t.Context(), kept.ID())
	grouptest.WantError(t, err, conclave.ErrClosed)
	_, err = n.RegisterCheck(t.Context(), "disk", 0)
	grouptest.WantError(t, err, conclave.ErrClosed)
	_, err = n.Semaphore("x", 1).Acquire(t.Context(), 1)
	grouptest.WantError(t, err, conclave.ErrClosed)
	grouptest.WantError(t, n.Semaphore("x", 1).Resize(t.Context(), 1), conclave.ErrClosed)
	_, err = n.Election("x").Campaign(t.Context(), nil)
	grouptest.WantError(t, err, conclave.ErrClosed)
}

// Close ends a Lock and an Acquire that wait, while the group cannot be reached. Under a session without TTL, which outlives the
// process, they may have been granted meanwhile, as for a write that is under way.
func TestSession_CloseWhileWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		cfg     *conclave.SessionConfig
		unknown bool
	}{"with TTL": {nil, false}, "without TTL": {grouptest.Lasting(), true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := grouptest.Start(t, 3, grouptest.MemoryNetwork)
			leader := g.Leader()
			away := (leader + 1) % 3
			n := g.Nodes[away]
			s := grouptest.MustSession(t, n, c.cfg)
			grouptest.MustLock(t, g.Nodes[leader].FencedLock("x"))
			grouptest.MustAcquire(t, g.Nodes[leader].Semaphore("x", 1), 1)
			waiting := grouptest.StartLock(t, s.FencedLock("x"))
			acquired := make(chan error, 1)
			go func() {
				_, err := s.Semaphore("x", 1).Acquire(t.Context(), 1)
				acquired <- err
			}()
			for queued := 0; queued == 0; grouptest.Pass(time.Millisecond) {
				info, err := n.Semaphore("x", 1).Info(t.Context())
				grouptest.Must(t, err)
				queued = info.Waiters
			}
			g.Disconnect(away) // else the group may withdraw them first, so that nothing is unknown
			_ = n.Close(grouptest.Expired())
			for _, err := range []error{<-waiting.Err, <-acquired} {
				grouptest.WantError(t, err, conclave.ErrClosed)
				if got := errors.Is(err, conclave.ErrUnknown); got != c.unknown {
					t.Errorf("%v: unknown %v", err, got)
				}
			}
		})
	}
}
