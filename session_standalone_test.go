package conclave_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestStandalone(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	ctx := t.Context()
	id, err := n.CreateSession(ctx, &conclave.SessionConfig{Name: "web", TTL: time.Hour, LockDelay: 5 * time.Second, NoChecks: true, Behavior: conclave.DeleteKeys})
	grouptest.Must(t, err)
	info, err := n.SessionInfo(ctx, id)
	grouptest.Must(t, err)
	want := conclave.SessionInfo{
		ID: id, Name: "web", Node: n.Status().ID, TTL: time.Hour, LockDelay: 5 * time.Second, Remaining: info.Remaining,
		Behavior: conclave.DeleteKeys, CreateIndex: info.CreateIndex, Standalone: true,
	}
	if info.Checks = nil; !equalInfo(info, want) || info.Remaining <= 0 || info.CreateIndex == 0 {
		t.Errorf("%+v, want %+v", info, want)
	}
	grouptest.Must(t, n.RenewSession(ctx, id))
	_, err = n.KV().Acquire(ctx, "k", []byte("v"), id)
	grouptest.Must(t, err)
	_, err = n.AttachSession(ctx, id)
	grouptest.WantError(t, err, conclave.ErrInvalid)
	grouptest.Must(t, n.CloseSession(ctx, id))
	if _, err := n.KV().Get(ctx, "k"); !errors.Is(err, conclave.ErrKeyNotFound) {
		t.Errorf("the key of the closed session: %v", err)
	}
	grouptest.WantError(t, n.RenewSession(ctx, id), conclave.ErrSessionNotFound)
	_, err = n.SessionInfo(ctx, id)
	grouptest.WantError(t, err, conclave.ErrSessionNotFound)
	grouptest.WantError(t, n.CloseSession(ctx, id), conclave.ErrSessionNotFound)
}

// equalInfo compares without the checks.
func equalInfo(a, b conclave.SessionInfo) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Node == b.Node && a.TTL == b.TTL && a.LockDelay == b.LockDelay &&
		a.Behavior == b.Behavior && a.CreateIndex == b.CreateIndex && a.Standalone == b.Standalone
}

func TestStandalone_Refused(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	alone, err := n.CreateSession(t.Context(), nil)
	grouptest.Must(t, err)
	grouptest.Must(t, n.CloseSession(t.Context(), alone))
	bound := grouptest.MustSession(t, n, nil)
	grouptest.WantError(t, n.RenewSession(t.Context(), bound.ID()), conclave.ErrInvalid)
	for _, cfg := range []conclave.SessionConfig{
		{TTL: time.Millisecond}, {LockDelay: time.Hour}, {Checks: []string{"unheard-of"}}, {Name: "\x00"},
	} {
		_, err := n.CreateSession(t.Context(), &cfg)
		grouptest.WantError(t, err, conclave.ErrInvalid)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.CreateSession(gone, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for s, err := range n.Sessions(t.Context()) {
		if grouptest.Must(t, err); s.Standalone {
			t.Errorf("a session that was refused: %+v", s)
		}
	}
}

// A client, which is no member, renews standalone sessions like a node.
func TestStandalone_RenewedByClient(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	id, err := n.CreateSession(t.Context(), &conclave.SessionConfig{TTL: time.Hour})
	grouptest.Must(t, err)
	c := grouptest.Dial(t, &conclave.ClientConfig{}, n)
	grouptest.Must(t, c.RenewSession(t.Context(), id))
	if info, err := c.SessionInfo(t.Context(), id); err != nil || info.ID != id || !info.Standalone {
		t.Errorf("%+v, %v", info, err)
	}
	grouptest.WantError(t, c.RenewSession(t.Context(), conclave.SessionID{1}), conclave.ErrSessionNotFound)
}

// Standalone sessions that are created and forgotten, as many as there may be, leave the
// sessions of the program alone.
func TestStandalone_LeaveOwnSessions(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			for range 101 { // 200 more than the limit
				_, err := n.CreateSession(t.Context(), &conclave.SessionConfig{TTL: conclave.NoTTL})
				if err != nil && !errors.Is(err, conclave.ErrBusy) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	_, err := n.CreateSession(t.Context(), &conclave.SessionConfig{TTL: conclave.NoTTL})
	grouptest.WantError(t, err, conclave.ErrBusy)
	_, err = n.FencedLock("x").Lock(t.Context())
	grouptest.Must(t, err)
	grouptest.MustSession(t, n, nil)
}
