package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// startSet starts a Lock, and returns when the group has it in the queue of a name in which so many others wait.
func startSet(t *testing.T, n grouptest.Access, s *conclave.LockSet, name string, others int) *grouptest.Waiting {
	t.Helper()
	return startBehind(t, n, s.Lock, name, others)
}

// startBehind is startSet of any Lock.
func startBehind(t *testing.T, n grouptest.Access, lock func(context.Context) (conclave.Fence, error), name string, others int) *grouptest.Waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &grouptest.Waiting{Cancel: cancel, Err: make(chan error, 1)}
	go func() {
		_, err := lock(ctx)
		w.Err <- err
	}()
	grouptest.AwaitWaiters(t, n.FencedLock(name), others+1)
	return w
}

// passOver has a lock granted as often as sets that wait for it are passed over.
func passOver(t *testing.T, l *conclave.FencedLock) {
	t.Helper()
	for range 4 {
		grouptest.MustLock(t, l)
		grouptest.MustUnlock(t, l)
	}
}

// A session waits for a lock that a set behind which it stands is to have, and the set for one that the session has. The others
// of the set are not reserved for it, as none of the three would go on then.
func TestLockSet_ReservationClosesNoCycle(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		a, b := grouptest.MustSession(t, n, grouptest.Lasting()), grouptest.MustSession(t, n, grouptest.Lasting())
		ay, ax, bx := a.FencedLock("y"), a.FencedLock("x"), b.FencedLock("x")
		grouptest.MustLock(t, ay)
		grouptest.MustLock(t, bx)
		set := n.LockSet([]string{"x", "y", "z"}, conclave.RefuseDeadlock())
		w := startSet(t, n, set, "x", 0)
		got := startBehind(t, n, ax.Lock, "x", 1)
		passOver(t, n.FencedLock("z"))
		grouptest.MustUnlock(t, bx)
		grouptest.Must(t, <-got.Err) // not after the set
		grouptest.MustUnlock(t, ax)
		grouptest.MustUnlock(t, ay)
		grouptest.Must(t, <-w.Err)
		grouptest.Must(t, set.Unlock(t.Context()))
	})
}

// A request waits for each set that has a lock reserved before it, and not for the first one alone.
func TestLockSet_DeadlockByLaterReservation(t *testing.T) {
	n := grouptest.Alone(t)
	a, h := grouptest.MustSession(t, n, grouptest.Lasting()), n.FencedLock("w")
	grouptest.MustLock(t, a.FencedLock("y"))
	grouptest.MustLock(t, h)
	first, later := n.LockSet([]string{"w", "x"}), n.LockSet([]string{"y", "x"})
	got, gotLater := startSet(t, n, first, "w", 0), startSet(t, n, later, "y", 0)
	passOver(t, n.FencedLock("x"))
	_, err := a.FencedLock("x", conclave.RefuseDeadlock()).Lock(t.Context())
	grouptest.WantError(t, err, conclave.ErrDeadlock)
	grouptest.MustUnlock(t, h)
	grouptest.Must(t, <-got.Err)
	gotLater.Cancel()
	<-gotLater.Err
}

// A reader waits behind a writer, which waits for a set that has a share of the lock reserved.
func TestLockSet_DeadlockBehindWriter(t *testing.T) {
	n := grouptest.Alone(t)
	a := grouptest.MustSession(t, n, grouptest.Lasting())
	grouptest.MustLock(t, a.FencedLock("y"))
	w := startSet(t, n, n.LockSet([]string{"y"}, conclave.Shared("x")), "y", 0)
	passOver(t, n.FencedLock("x"))
	x := a.RWLock("x", conclave.RefuseDeadlock())
	_, err := x.RLock(t.Context()) // beside the set
	grouptest.Must(t, err)
	grouptest.Must(t, x.RUnlock(t.Context()))
	writer := startBehind(t, n, n.FencedLock("x").Lock, "x", 1)
	_, err = x.RLock(t.Context())
	grouptest.WantError(t, err, conclave.ErrDeadlock)
	for _, waiting := range []*grouptest.Waiting{w, writer} {
		waiting.Cancel()
		<-waiting.Err
	}
}

// Tasks that wait for one thing at a time and refuse deadlocks never wait for each other, whatever they nest.
func TestRefuseDeadlock_SetsAndLocks(t *testing.T) {
	n := grouptest.Alone(t)
	var tasks sync.WaitGroup
	for range 8 {
		s := grouptest.MustSession(t, n, grouptest.Lasting())
		tasks.Go(func() {
			for range 60 {
				if err := nest(t.Context(), s); err != nil && !errors.Is(err, conclave.ErrDeadlock) {
					t.Error(err)
				}
			}
		})
	}
	tasks.Wait()
}

// nest locks two of six names one after the other, each perhaps with a third one as a set, and releases what it has.
func nest(ctx context.Context, s *conclave.Session) error {
	names := rand.Perm(6)
	for i := range 2 {
		name, other, refuse := fmt.Sprint(names[3*i]), fmt.Sprint(names[3*i+1]), conclave.RefuseDeadlock()
		l := s.RWLock(name, refuse)
		lock, unlock := l.Lock, l.Unlock
		switch rand.N(4) {
		case 0:
			lock, unlock = l.RLock, l.RUnlock
		case 1:
			set := s.LockSet([]string{name, other}, refuse)
			lock, unlock = set.Lock, set.Unlock
		case 2:
			set := s.LockSet([]string{name}, conclave.Shared(other), refuse)
			lock, unlock = set.Lock, set.Unlock
		}
		if _, err := lock(ctx); err != nil {
			return err
		}
		defer func() { _ = unlock(ctx) }()
	}
	return nil
}
