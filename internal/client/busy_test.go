package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// refuseFirst has the group be too busy for the first commands of a kind.
func (g *fakeGroup) refuseFirst(n int, kind func(*wire.Command) bool) {
	g.set(func() {
		g.refuses = func(c *wire.Command) bool {
			if n > 0 && kind(c) {
				n--
				return true
			}
			return false
		}
	})
}

func isUnlock(c *wire.Command) bool { return c.GetUnlock() != nil }

// withFake runs a test with a fake group, in a bubble.
func withFake(t *testing.T, name string, f func(*testing.T, *Client, *fakeGroup)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, g := newFake(t)
			c.StopRenewing()
			f(t, c, g)
		})
	})
}

func wantFree(t *testing.T, g *fakeGroup) {
	t.Helper()
	if v := g.lock("x"); v != nil {
		t.Errorf("the group still has the lock: %+v", v)
	}
}

// The graceful end of a process is submitted until it is applied as well.
func TestDeregister_GroupBusy(t *testing.T) {
	withFake(t, "deregister", func(t *testing.T, c *Client, g *fakeGroup) {
		mustAcquire(t, newLock(c, mustOpen(t, c, fakeTTL), "x"))
		g.refuseFirst(3, func(c *wire.Command) bool { return c.GetDeregister() != nil })
		if err := c.Deregister(t.Context()); err != nil {
			t.Error(err)
		}
		wantFree(t, g)
	})
}

// The group may be too busy for a release, a withdrawal or the close of a session, as for any
// command of a process while too many outcomes are not acknowledged. Each is submitted until it
// is applied, and what it is for is not held any more when it returns.
func TestPursue_GroupBusy(t *testing.T) {
	withFake(t, "unlock", func(t *testing.T, c *Client, g *fakeGroup) {
		l := newLock(c, mustOpen(t, c, NoTTL), "x")
		mustAcquire(t, l)
		g.refuseFirst(3, isUnlock)
		if err := l.Release(t.Context(), nil); err != nil {
			t.Error(err)
		}
		wantFree(t, g)
	})
	withFake(t, "abandoned after the grant", func(t *testing.T, c *Client, g *fakeGroup) {
		lease := mustOpen(t, c, NoTTL)
		l := newLock(c, lease, "x")
		a := start(l, lease)
		g.settle()
		g.refuseFirst(3, isUnlock)
		wantKind(t, a.abandon(&Fault{Kind: Interrupted}), Interrupted)
		<-time.After(time.Minute)
		wantFree(t, g)
	})
	withFake(t, "withdraw", func(t *testing.T, c *Client, g *fakeGroup) {
		held, lease := newLock(c, mustOpen(t, c, NoTTL), "x"), mustOpen(t, c, NoTTL)
		mustAcquire(t, held)
		a := start(newLock(c, lease, "x"), lease)
		g.settle()
		g.refuseFirst(3, func(c *wire.Command) bool { return c.GetWithdraw() != nil })
		wantKind(t, a.abandon(&Fault{Kind: Interrupted}), Interrupted)
		<-time.After(time.Minute)
		if n := g.lock("x").Waiters; n != 0 {
			t.Errorf("%d requests are still queued", n)
		}
	})
	withFake(t, "close", func(t *testing.T, c *Client, g *fakeGroup) {
		lease := mustOpen(t, c, NoTTL)
		mustAcquire(t, newLock(c, lease, "x"))
		g.refuseFirst(3, func(c *wire.Command) bool { return c.GetCloseSession() != nil })
		if err := lease.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wantFree(t, g)
	})
	withFake(t, "context ends", func(t *testing.T, c *Client, g *fakeGroup) {
		l := newLock(c, mustOpen(t, c, NoTTL), "x")
		mustAcquire(t, l)
		g.refuseFirst(10, isUnlock)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantKind(t, l.Release(ctx, nil), Unknown)
		<-time.After(time.Minute)
		wantFree(t, g)
	})
}

// unsent is a group that has refused to register this process again: it does not send the next commands. Before the answer the state is replaced.
type unsent struct {
	*fakeGroup
	next int
}

func (g *unsent) Submit(size int, encode func() []byte, c Call, urgent bool) {
	if g.next == 0 {
		g.fakeGroup.Submit(size, encode, c, urgent)
		return
	}
	g.next--
	g.replaceState()
	var registered wire.ID
	g.set(func() { registered = g.incarnation })
	tickets.Answer(c, registered, nil)
}

// What was not sent, since this process is not registered, is submitted again, and nothing of it is undone.
func TestUnsent_SubmittedAgain(t *testing.T) {
	withFake(t, "exec", func(t *testing.T, c *Client, g *fakeGroup) {
		c.Connect(&unsent{g, 1}, c.process)
		if _, err := c.Exec(t.Context(), renewCommand()); err != nil {
			t.Error(err)
		}
	})
	withFake(t, "open", func(t *testing.T, c *Client, g *fakeGroup) {
		c.Connect(&unsent{g, 1}, c.process)
		mustOpen(t, c, NoTTL)
		g.settle()
		g.set(func() {
			if slices.ContainsFunc(g.applied, func(c *wire.Command) bool { return c.GetCloseSession() != nil }) {
				t.Error("a session is closed that was never opened")
			}
		})
	})
	withFake(t, "lock", func(t *testing.T, c *Client, g *fakeGroup) {
		c.Connect(&unsent{g, 2}, c.process)
		mustAcquire(t, newLock(c, nil, "x"))
	})
}
