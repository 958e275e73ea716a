package conclave

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// What the tests of internals need; those of the API have internal/grouptest, which
// imports this package.

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	var e *Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		t.Fatalf("error is %v; want an *Error that wraps %q", err, want)
	}
}

func alone(t testing.TB) *Node {
	t.Helper()
	n, err := Open(within(t, 20*time.Second), nil)
	must(t, err)
	t.Cleanup(func() { n.Close(expired) })
	return n
}

func mustLock(t testing.TB, l *FencedLock) Fence {
	t.Helper()
	f, err := l.Lock(within(t, 20*time.Second))
	must(t, err)
	return f
}

func lasting() *SessionConfig {
	return &SessionConfig{TTL: NoTTL, LockDelay: NoLockDelay, Checks: NoChecks}
}

func mustSession(t testing.TB, n *Node, cfg *SessionConfig) *Session {
	t.Helper()
	s, err := n.NewSession(within(t, 20*time.Second), cfg)
	must(t, err)
	return s
}

// awaitEnded blocks until the group does not have the session any more.
func awaitEnded(t testing.TB, n *Node, id SessionID) {
	t.Helper()
	for {
		list, err := n.Sessions(within(t, 20*time.Second))
		must(t, err)
		if !slices.ContainsFunc(list, func(s SessionInfo) bool { return s.ID == id }) {
			return
		}
	}
}

func mustLead(t testing.TB, e *Election, value string) Fence {
	t.Helper()
	f, err := e.Campaign(within(t, 20*time.Second), []byte(value))
	must(t, err)
	return f
}

func mustPut(t testing.TB, k *KV, key, value string) Entry {
	t.Helper()
	e, err := k.Put(within(t, 20*time.Second), key, []byte(value))
	must(t, err)
	return e
}
