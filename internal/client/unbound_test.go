package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A registration that expires withdraws the places that its process has under a
// session without TTL: for the caller that is the end of the session.
func TestLock_RegistrationExpiredWhileQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		lasting, waiter := mustOpen(t, c, NoTTL), mustOpen(t, c, NoTTL)
		mustAcquire(t, newLock(c, lasting, "x"))
		failed := make(chan error, 1)
		go func() {
			_, err := newLock(c, waiter, "x").Acquire(context.Background(), true, nil, nil)
			failed <- err
		}()
		for g.lock("x").Waiters == 0 {
			g.tick()
		}
		c.StopRenewing()
		time.Sleep(2 * time.Minute) // of group time: the registration expires
		g.tick()
		if err := <-failed; !hasDetail(err, unboundHere) {
			t.Errorf("got %v, want that the session is unbound", err)
		}
	})
}

func TestAcquire_RegistrationExpiredWhileQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		request := PermitRequest{Lease: mustOpen(t, c, NoTTL), Name: "s", Limit: 1, Permits: 1, Wait: true}
		if _, err := c.Acquire(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		request.Lease = mustOpen(t, c, NoTTL)
		failed := make(chan error, 1)
		go func() {
			_, err := c.Acquire(context.Background(), request)
			failed <- err
		}()
		synctest.Wait()
		c.StopRenewing()
		time.Sleep(2 * time.Minute)
		g.tick()
		if err := <-failed; !hasDetail(err, unboundHere) {
			t.Errorf("got %v, want that the session is unbound", err)
		}
	})
}
