package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

const stay = time.Second

// newLingering returns a client of a fake group in which locks can linger, and a session
// of another owner.
func newLingering(t *testing.T) (*Client, *fakeGroup, *Lease) {
	t.Helper()
	c, g := newFake(t)
	raise := &wire.RaiseLevel{Level: wire.LevelLinger}
	if _, err := c.Exec(t.Context(), &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: raise}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Wait)
	t.Cleanup(func() { // stops the timers
		for _, l := range c.leases.live() {
			l.end(endedByGroup(), released)
		}
	})
	return c, g, mustOpen(t, c, time.Hour)
}

func newLingeringLock(c *Client, name string) *Lock {
	k := new(Lock)
	k.Init(c, LockConfig{Space: wire.Space_LOCK, Name: name, Linger: stay})
	return k
}

func mustRelease(t *testing.T, l *Lock) {
	t.Helper()
	if err := l.Release(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// commands counts the commands that were applied.
func (g *fakeGroup) commands() int {
	g.settle()
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.applied)
}

// acquiring has a handle acquire the lock, and returns its result.
func acquiring(ctx context.Context, l *Lock) <-chan acquired {
	result := make(chan acquired, 1)
	go func() {
		fence, err := l.Acquire(ctx, true, nil, nil)
		result <- acquired{fence: fence, err: err}
	}()
	return result
}

func TestTenure_NoCommandForNextHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		a, b := newLingeringLock(c, "x"), newLingeringLock(c, "x")
		last := mustAcquire(t, a)
		mustRelease(t, a)
		applied := g.commands()
		for _, l := range []*Lock{b, a, a, b} {
			fence := mustAcquire(t, l)
			if fence <= last {
				t.Errorf("fence %d after %d", fence, last)
			}
			if got, err := l.Fence(); got != fence || err != nil {
				t.Errorf("Fence is %d, %v; want %d", got, err, fence)
			}
			last = fence
			mustRelease(t, l)
		}
		if got := g.commands(); got != applied {
			t.Errorf("%d commands, the last is %v", got-applied, g.last())
		}
		if v := g.lock("x"); !v.Held || !v.Lingering {
			t.Errorf("the group sees %+v", v)
		}
		time.Sleep(stay)
		synctest.Wait()
		if v := g.lock("x"); v != nil {
			t.Errorf("after its time to linger, the group sees %+v", v)
		}
		if fence := mustAcquire(t, b); fence <= last+1 {
			t.Errorf("fence %d after a tenure with a block from before %d", fence, last)
		}
		c.StopRenewing()
	})
}

// However often the lock is acquired in a tenure, each fence is larger than the last.
func TestTenure_MoreFencesThanBlock(t *testing.T) {
	c, g, _ := newLingering(t)
	a := newLingeringLock(c, "x")
	mustAcquire(t, a)
	applied := g.commands()
	last := uint64(0)
	const cycles = 20_000
	for range cycles {
		mustRelease(t, a)
		fence := mustAcquire(t, a)
		if fence <= last {
			t.Fatalf("fence %d after %d", fence, last)
		}
		last = fence
	}
	if n := g.commands() - applied; n > 50 {
		t.Errorf("%d commands for %d cycles", n, cycles)
	}
}

// Handles that wait are served in their order, without a command.
func TestTenure_WaitersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, _ := newLingering(t)
		holder := newLingeringLock(c, "x")
		mustAcquire(t, holder)
		var order []int
		var waiters sync.WaitGroup
		for i := range 5 {
			waiters.Go(func() {
				l := newLingeringLock(c, "x")
				mustAcquire(t, l)
				order = append(order, i)
				mustRelease(t, l)
			})
			synctest.Wait()
		}
		applied := g.commands()
		mustRelease(t, holder)
		waiters.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
		if g.commands() != applied {
			t.Errorf("the last command is %v", g.last())
		}
		c.StopRenewing()
	})
}

// Another owner's request ends the tenure: at once if nothing here needs the lock, else
// once those that came before it here have had it. What comes later queues in the group.
func TestTenure_Recalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, other := newLingering(t)
		a := newLingeringLock(c, "x")
		fence := mustAcquire(t, a)
		mustRelease(t, a)
		b := newLock(c, other, "x")
		if got := mustAcquire(t, b); got <= fence { // an idle tenure
			t.Errorf("fence %d after %d", got, fence)
		}
		waiting := acquiring(t.Context(), a)
		synctest.Wait()
		mustRelease(t, b)
		if r := <-waiting; r.err != nil {
			t.Fatal(r.err)
		}
		before := acquiring(t.Context(), newLingeringLock(c, "x"))
		synctest.Wait()
		elsewhere := acquiring(t.Context(), b)
		synctest.Wait()
		late := newLingeringLock(c, "x")
		after := acquiring(t.Context(), late)
		synctest.Wait()
		if v := g.lock("x"); v.Waiters != 2 {
			t.Errorf("%d wait in the group, want the other owner and the next tenure", v.Waiters)
		}
		mustRelease(t, a)
		first := <-before
		if first.err != nil {
			t.Fatal(first.err)
		}
		synctest.Wait()
		select {
		case r := <-elsewhere:
			t.Fatalf("%+v was granted although a handle here holds the lock", r)
		case r := <-after:
			t.Fatalf("%+v has overtaken another owner", r)
		default:
		}
		c.leaseTenures(t, "x", first.fence)
		second := <-elsewhere
		mustRelease(t, b)
		third := <-after
		if second.err != nil || third.err != nil || second.fence <= first.fence || third.fence <= second.fence {
			t.Errorf("got %+v, %+v, %+v", first, second, third)
		}
		c.StopRenewing()
	})
}

// leaseTenures releases the hold with that fence.
func (c *Client) leaseTenures(t *testing.T, name string, fence uint64) {
	t.Helper()
	own, err := c.ownLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own.keeper.mu.Lock()
	var owner *Lock
	for _, k := range own.keeper.names[name].tenures {
		if k.owner != nil {
			owner = k.owner
		}
	}
	own.keeper.mu.Unlock()
	if got, err := owner.Fence(); got != fence || err != nil {
		t.Fatalf("the lock is held with fence %d, %v; want %d", got, err, fence)
	}
	mustRelease(t, owner)
}

func TestTenure_TryLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, other := newLingering(t)
		a, b := newLingeringLock(c, "x"), newLingeringLock(c, "x")
		try := func(l *Lock) error {
			_, err := l.Acquire(t.Context(), false, nil, nil)
			return err
		}
		if err := try(a); err != nil {
			t.Fatal(err)
		}
		applied := g.commands()
		err := try(b)
		var f *Fault
		if !errors.As(err, &f) || !isCode(err, wire.Code_LOCKED) || !a.IsOwner(f.Reply) {
			t.Errorf("got %v, want that the lock is held here", err)
		}
		mustRelease(t, a)
		if err := try(b); err != nil {
			t.Error(err)
		}
		if g.commands() != applied {
			t.Errorf("the last command is %v", g.last())
		}
		mustRelease(t, b)
		outside := newLock(c, other, "x")
		if err := try(outside); !isCode(err, wire.Code_LOCKED) { // it recalls the tenure
			t.Errorf("got %v, want that the lock is held", err)
		}
		synctest.Wait()
		if err := try(outside); err != nil {
			t.Error(err)
		}
		if err := try(a); !isCode(err, wire.Code_LOCKED) {
			t.Errorf("got %v, want that the lock is held", err)
		}
		mustRelease(t, outside)
		// A release under way counts as done.
		if err := try(a); err != nil {
			t.Error(err)
		}
		mustRelease(t, a)
		g.hold()
		time.Sleep(stay)
		synctest.Wait()
		tried := make(chan error, 1)
		go func() { tried <- try(a) }()
		synctest.Wait()
		g.mu.Lock()
		if n := len(g.queue); n != 1 { // a lost release is sent again, perhaps behind what follows it
			t.Errorf("%d commands are on their way, want the release alone", n)
		}
		g.mu.Unlock()
		g.release()
		if err := <-tried; err != nil {
			t.Errorf("while the last tenure was being released: %v", err)
		}
		c.StopRenewing()
	})
}

func TestTenure_Reentrant(t *testing.T) {
	c, g, _ := newLingering(t)
	l := new(Lock)
	l.Init(c, LockConfig{Space: wire.Space_LOCK, Name: "x", Linger: stay, Reentrant: true, Limit: 2})
	fence := mustAcquire(t, l)
	applied := g.commands()
	if again := mustAcquire(t, l); again != fence || l.Holds() != 2 {
		t.Errorf("fence %d and %d holds, want %d and 2", again, l.Holds(), fence)
	}
	if _, err := l.Acquire(t.Context(), true, nil, nil); !isCode(err, wire.Code_LIMIT_REACHED) {
		t.Errorf("got %v, want that the limit is reached", err)
	}
	mustRelease(t, l)
	if _, err := newLingeringLock(c, "x").Acquire(t.Context(), false, nil, nil); !isCode(err, wire.Code_LOCKED) {
		t.Errorf("got %v after one of two releases", err)
	}
	mustRelease(t, l)
	wantKind(t, l.Release(t.Context(), nil), NotHeld)
	if g.commands() != applied {
		t.Errorf("the last command is %v", g.last())
	}
}

// Before each member of the group can follow, a lock does not linger.
func TestTenure_NotBelowLevel(t *testing.T) {
	c, g := newFake(t)
	a := newLingeringLock(c, "x")
	mustAcquire(t, a)
	mustRelease(t, a)
	if v := g.lock("x"); v != nil {
		t.Errorf("the group sees %+v", v)
	}
}

// The keeper keeps nothing of locks that do not linger any more.
func TestTenure_NothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, other := newLingering(t)
		mustAcquire(t, newLock(c, other, "busy"))
		for _, name := range []string{"a", "b", "busy"} {
			l := newLingeringLock(c, name)
			if _, err := l.Acquire(t.Context(), false, nil, nil); err == nil {
				mustRelease(t, l)
			}
		}
		time.Sleep(stay)
		synctest.Wait()
		g.settle()
		own, err := c.ownLease(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		own.keeper.mu.Lock()
		defer own.keeper.mu.Unlock()
		if n := len(own.keeper.names); n != 0 {
			t.Errorf("%d names are left", n)
		}
		c.StopRenewing()
	})
}
