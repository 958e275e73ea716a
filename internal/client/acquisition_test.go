package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// start submits an acquisition whose caller can leave at any moment.
func start(l *Lock, lease *Lease) *acquisition {
	a := newAcquisition(l, lease)
	l.client.submit(l.lockCommand(lease, nil, wanted{wait: true}), a, false)
	return a
}

func TestAcquisition_AbandonedBeforeGrant(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	l := newLock(c, lease, "x")
	g.hold()
	a := start(l, lease)
	wantKind(t, a.abandon(&Fault{Kind: Interrupted}), Interrupted)
	g.release()
	if v := g.lock("x"); v != nil {
		t.Errorf("the grant was not released: %+v", v)
	}
	if l.Holds() != 0 {
		t.Error("the handle of a caller that has left holds the lock")
	}
}

func TestAcquisition_AbandonedBeforeQueued(t *testing.T) {
	c, g := newFake(t)
	holder, lease := mustOpen(t, c, fakeTTL), mustOpen(t, c, fakeTTL)
	held := newLock(c, holder, "x")
	mustAcquire(t, held)
	g.hold()
	a := start(newLock(c, lease, "x"), lease)
	wantKind(t, a.abandon(&Fault{Kind: Interrupted}), Interrupted)
	g.release()
	if v := g.lock("x"); v == nil || v.Waiters != 0 {
		t.Errorf("the place in the queue was not withdrawn: %+v", v)
	}
}

func TestAcquisition_AbandonedWhileQueued(t *testing.T) {
	c, g := newFake(t)
	holder, lease := mustOpen(t, c, fakeTTL), mustOpen(t, c, fakeTTL)
	held := newLock(c, holder, "x")
	mustAcquire(t, held)
	a := start(newLock(c, lease, "x"), lease)
	g.settle()
	err := a.abandon(&Fault{Kind: Interrupted}).(*Fault)
	if r := err.Reply; r.GetPosition() != 1 || r.GetHolder() == nil {
		t.Errorf("the fault does not say what the request waited for: %v", r)
	}
	if w := g.last().GetWithdraw(); w == nil || w.GetSeq() != a.ticket.Seq {
		t.Errorf("got %v, want the withdrawal of ticket %d", g.last(), a.ticket.Seq)
	}
	if v := g.lock("x"); v.Waiters != 0 {
		t.Errorf("the place in the queue was not withdrawn: %+v", v)
	}
}

func TestAcquisition_GrantRacesWithWithdrawal(t *testing.T) {
	c, g := newFake(t)
	holder, lease := mustOpen(t, c, fakeTTL), mustOpen(t, c, fakeTTL)
	held := newLock(c, holder, "x")
	mustAcquire(t, held)
	l := newLock(c, lease, "x")
	a := start(l, lease)
	g.settle()
	g.hold()
	a.abandon(&Fault{Kind: Interrupted})
	done := make(chan error, 1)
	go func() { done <- held.Release(t.Context(), nil) }() // the grant may come before the withdrawal
	g.release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if v := g.lock("x"); v != nil {
		t.Errorf("the grant was not undone: %+v", v)
	}
}

func TestAcquisition_AbandonedAfterGrant(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	l := newLock(c, lease, "x")
	a := start(l, lease)
	g.settle()
	wantKind(t, a.abandon(&Fault{Kind: Interrupted}), Interrupted)
	if v := g.lock("x"); v != nil || l.Holds() != 0 {
		t.Errorf("the grant was not released: %+v", v)
	}
}

// A waiter that Resize dismissed, in entries that a snapshot skipped, gets the limit
// and not the end of its session.
func TestAcquisition_RecheckAfterResize(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	_, err := c.Exec(t.Context(), &wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "s", Limit: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	a := newAcquisition(&Permit{name: "s"}, lease)
	ticket := wire.Ticket{Incarnation: lease.incarnation, Seq: 99}
	a.Deliver(ticket, &wire.Reply{Code: wire.Code_QUEUED}, true)
	a.Deliver(ticket, a.Recheck(g.machine, ticket), false)
	if got := <-a.result; !isCode(got.err, wire.Code_LIMIT_MISMATCH) {
		t.Errorf("got %v, want LIMIT_MISMATCH", got.err)
	}
}

// Permits that were granted and have ended by their MaxHold, in entries that a snapshot skipped, are requested again: no
// limit has refused them.
func TestAcquisition_RecheckAfterMaxHold(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	_, err := c.Exec(t.Context(), &wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "s", Limit: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	a := newAcquisition(&Permit{name: "s", maxHold: time.Second}, lease)
	ticket := wire.Ticket{Incarnation: lease.incarnation, Seq: 99}
	a.Deliver(ticket, &wire.Reply{Code: wire.Code_QUEUED}, true)
	a.Deliver(ticket, a.Recheck(g.machine, ticket), false)
	if got := <-a.result; !errors.Is(got.err, errLeaseEnded) || lease.Err() != nil {
		t.Errorf("got %v, want another request under the same lease: %v", got.err, lease.Err())
	}
}

func TestLock_OwnLeaseEndsWhileQueued(t *testing.T) {
	c, g := newFake(t)
	holder := mustOpen(t, c, fakeTTL)
	held := newLock(c, holder, "x")
	mustAcquire(t, held)
	first, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiting := newLock(c, nil, "x")
	granted := make(chan error, 1)
	go func() {
		_, err := waiting.Acquire(t.Context(), true, nil, nil)
		granted <- err
	}()
	for g.lock("x").Waiters == 0 {
		g.tick()
	}
	if err := c.CloseSession(t.Context(), first.ID()); err != nil {
		t.Fatal(err)
	}
	for g.lock("x").Waiters == 0 {
		select {
		case err := <-granted:
			t.Fatalf("got %v, want the request queued again under the next lease", err)
		default:
			g.tick()
		}
	}
	if err := held.Release(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Errorf("got %v, want the lock under the next lease", err)
	}
}

// A re-entry that is applied after the release of what it would re-enter acquires the
// lock for the first time.
func TestLock_ReleasedDuringReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		c.StopRenewing()
		l := newLock(c, mustOpen(t, c, NoTTL), "x")
		l.reentrant = true
		first := mustAcquire(t, l)
		g.hold()
		released, reentered := make(chan error, 1), make(chan error, 1)
		held := l.hold
		go func() {
			released <- held.release(t.Context(), l, nil, taken{done: func() {}})
		}()
		synctest.Wait()
		go func() {
			_, err := l.Acquire(t.Context(), true, nil, nil)
			reentered <- err
		}()
		synctest.Wait()
		l.takeBack().done()
		g.release()
		if err := <-released; err != nil {
			t.Error(err)
		}
		if err := <-reentered; err != nil {
			t.Fatal(err)
		}
		if f, err := l.Fence(); err != nil || f == first {
			t.Errorf("fence %d, %v after the re-entry; want another than %d", f, err, first)
		}
	})
}

func TestLock_FixedLeaseEndsWhileQueued(t *testing.T) {
	c, g := newFake(t)
	holder, lease := mustOpen(t, c, fakeTTL), mustOpen(t, c, fakeTTL)
	mustAcquire(t, newLock(c, holder, "x"))
	granted := make(chan error, 1)
	go func() {
		_, err := newLock(c, lease, "x").Acquire(t.Context(), true, nil, nil)
		granted <- err
	}()
	for g.lock("x").Waiters == 0 {
		g.tick()
	}
	if err := c.CloseSession(t.Context(), lease.ID()); err != nil {
		t.Fatal(err)
	}
	wantKind(t, <-granted, Expired)
}

// A call whose context ends while its failure is being delivered returns.
func TestSend_CancelledWhileItFails(t *testing.T) {
	c, g := newFake(t)
	c.StopRenewing()
	for range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		c.group = failing{g}
		if _, err := c.send(ctx, renewCommand(), func(answer) { cancel() }); err == nil {
			t.Fatal("a failed call has succeeded")
		}
	}
}

// failing is a group that has stopped.
type failing struct{ *fakeGroup }

func (failing) Submit(_ int, _ func() []byte, c Call, _ bool) { c.Fail(context.Canceled) }
func (failing) Cancel(Call)                                   {}

func TestExec_RegistrationExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		c.StopRenewing()
		first := g.incarnation
		time.Sleep(2 * time.Minute) // of group time: the registration expires
		g.tick()
		if err := c.Renew(t.Context()); err == nil {
			t.Error("a renewal under an expired registration was acknowledged")
		}
		l := newLock(c, nil, "x")
		mustAcquire(t, l)
		if g.incarnation == first || c.attempt != 1 {
			t.Errorf("registered %d times again", c.attempt)
		}
		c.StopRenewing()
	})
}

// However many calls find that the registration has expired, the process registers
// once.
func TestRegistration_ExpiredDuringCalls(t *testing.T) {
	c, g := newFake(t)
	expired := g.incarnation
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 20 {
				c.registrationExpired(expired) // as each call does that finds out
				l := newLock(c, nil, "x")
				if _, err := l.Acquire(t.Context(), true, nil, nil); err != nil {
					t.Error(err)
					return
				}
				if err := l.Release(t.Context(), nil); err != nil && !IsKind(err, Lost) {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if c.attempt != 1 {
		t.Errorf("registered %d times again, want 1", c.attempt)
	}
}
