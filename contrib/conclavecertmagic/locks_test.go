package conclavecertmagic_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclavecertmagic"
)

const name = "issue_cert_example.com"

// awaitWaiters waits until callers are queued for the lock, which nothing signals.
func awaitWaiters(t *testing.T, node *conclave.Node, n int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := node.FencedLock("certmagic/" + name).Info(t.Context())
		must(t, err)
		if info.Waiters >= n {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("no waiter")
		}
	}
}

// lock locks in the background.
func lock(ctx context.Context, s *conclavecertmagic.Storage) <-chan error {
	result := make(chan error, 1)
	go func() { result <- s.Lock(ctx, name) }()
	return result
}

func result(t *testing.T, results <-chan error) error {
	t.Helper()
	select {
	case err := <-results:
		return err
	case <-time.After(time.Minute):
		t.Fatal("no result within a minute")
		return nil
	}
}

func TestLock_ExcludesOtherMembersAndCallers(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a, b := conclavecertmagic.New(group.Node(0)), conclavecertmagic.New(group.Node(1))
	ctx := t.Context()
	must(t, a.Lock(ctx, name))
	first, err := a.Fence(name)
	must(t, err)
	for _, s := range []*conclavecertmagic.Storage{a, b} {
		if ok, err := s.TryLock(ctx, name); ok || err != nil {
			t.Errorf("TryLock: %v, %v, want false", ok, err)
		}
	}
	waiting := lock(ctx, b)
	awaitWaiters(t, group.Node(2), 1)
	must(t, a.Unlock(ctx, name))
	must(t, result(t, waiting))
	if second, err := b.Fence(name); err != nil || second <= first {
		t.Errorf("fence %v after %v, %v", second, first, err)
	}
	must(t, a.Unlock(ctx, name)) // again: a does not hold it, and b keeps it
	must(t, b.RenewLockLease(ctx, name, time.Minute))
	must(t, b.Unlock(ctx, name))
	if ok, err := a.TryLock(ctx, name); !ok || err != nil {
		t.Errorf("TryLock of a free lock: %v, %v", ok, err)
	}
}

func TestLock_CancelledWhileWaiting(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a, b := conclavecertmagic.New(group.Node(0)), conclavecertmagic.New(group.Node(1))
	must(t, a.Lock(t.Context(), name))
	ctx, cancel := context.WithCancel(t.Context())
	waiting := lock(ctx, b)
	awaitWaiters(t, group.Node(2), 1)
	cancel()
	if err := result(t, waiting); !errors.Is(err, context.Canceled) {
		t.Errorf("Lock: %v, want Canceled", err)
	}
	if err := a.Unlock(ctx, name); err != nil && !errors.Is(err, context.Canceled) { // releases all the same
		t.Errorf("Unlock: %v", err)
	}
	must(t, b.Lock(t.Context(), name))
}

func TestLock_HolderKilled(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a, b := conclavecertmagic.New(group.Node(0)), conclavecertmagic.New(group.Node(1))
	must(t, a.Lock(t.Context(), name))
	lost := a.Lost(name)
	group.Kill(0)
	must(t, b.Lock(t.Context(), name)) // after the TTL
	select {
	case <-lost:
	default:
		t.Error("another member holds the lock, and Lost is not closed")
	}
	if err := a.RenewLockLease(t.Context(), name, time.Minute); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		t.Errorf("RenewLockLease: %v, want ErrLockOwnershipLost", err)
	}
	must(t, a.Unlock(t.Context(), name))
}

func TestUnlock_LossThenGrantInTheSameProcess(t *testing.T) {
	group := conclavetest.Start(t, 3)
	ctx := t.Context()
	s, other := conclavecertmagic.New(group.Node(0)), conclavecertmagic.New(group.Node(1))
	must(t, s.Lock(ctx, name))
	lost := s.Lost(name)
	info, err := group.Node(1).FencedLock("certmagic/" + name).Info(ctx)
	must(t, err)
	must(t, group.Node(1).CloseSession(ctx, info.Session))
	select {
	case <-lost:
	case <-ctx.Done():
		t.Fatal("Lost was not closed")
	}
	must(t, s.Lock(ctx, name)) // another caller
	must(t, s.Unlock(ctx, name))
	must(t, s.RenewLockLease(ctx, name, time.Minute))
	if ok, err := other.TryLock(ctx, name); ok || err != nil {
		t.Errorf("the former holder has released the lock of the next one: %v", err)
	}
	must(t, s.Unlock(ctx, name))
	if err := s.RenewLockLease(ctx, name, time.Minute); !errors.Is(err, conclave.ErrNotHeld) {
		t.Errorf("RenewLockLease: %v, want ErrNotHeld", err)
	}
	if ok, err := other.TryLock(ctx, name); !ok || err != nil {
		t.Errorf("TryLock of a free lock: %v, %v", ok, err)
	}
}

func TestLockWith_SessionHasLockDelay(t *testing.T) {
	group := conclavetest.Start(t, 3)
	ctx := t.Context()
	session, err := group.Node(0).NewSession(ctx, &conclave.SessionConfig{LockDelay: time.Minute})
	must(t, err)
	a := conclavecertmagic.New(group.Node(0), conclavecertmagic.LockWith(session))
	b := conclavecertmagic.New(group.Node(1))
	must(t, a.Lock(ctx, name))
	must(t, group.Node(1).CloseSession(ctx, session.ID()))
	if ok, err := b.TryLock(ctx, name); ok || err != nil {
		t.Errorf("TryLock in the lock-delay: %v, %v, want false", ok, err)
	}
	<-session.Done()
	if err := a.Lock(ctx, name); !errors.Is(err, conclave.ErrSessionExpired) {
		t.Errorf("Lock: %v, want ErrSessionExpired", err)
	}
}
