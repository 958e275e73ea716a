package grouptest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// Every tenth outcome is lost, so that its command is retried; every tenth forwarded
// command is sent twice; leadership moves every 200 ms. A command applied twice would
// show as an additional hold, a skipped fence or a lock that stays held.
func TestExactlyOnce_Locks(t *testing.T) {
	t.Parallel()
	const owners = 8
	cycles := often(250)
	g := Start(t, 3, FaultyNetwork)
	ctx, stop := context.WithCancel(Bounded(t))
	var moving sync.WaitGroup
	moving.Go(func() { moveLeadership(ctx, g, 200*time.Millisecond) })

	resources := map[string]*resource{"x": {}, "y": {}}
	var wg sync.WaitGroup
	for o := range owners {
		name := []string{"x", "y"}[o%2]
		r := resources[name]
		l := g.Nodes[o%3].FencedLock(name, conclave.Reentrant(2))
		wg.Go(func() {
			for range cycles {
				f, err := l.Lock(ctx)
				if err != nil {
					t.Errorf("owner %d: %v", o, err)
					return
				}
				if r.inside.Add(1) != 1 {
					t.Error("two owners hold the lock")
				}
				if f <= r.last {
					t.Errorf("fence %v after %v", f, r.last)
				}
				r.last = f
				r.grants++
				reenter(ctx, t, l, f)
				r.inside.Add(-1)
				if err := l.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	stop()
	moving.Wait()
	x, y := resources["x"], resources["y"]
	if total := uint64(owners * cycles); x.grants+y.grants != total || uint64(max(x.last, y.last)) != total {
		t.Fatalf("%d grants, last fences %v and %v; want %d", x.grants+y.grants, x.last, y.last, total)
	}
	g.wantIdle("")
}

// resource is protected by a lock.
type resource struct {
	inside atomic.Int32
	last   conclave.Fence // guarded by the lock that is being tested
	grants uint64         // guarded by the same
}

// reenter locks and unlocks once more, which is the most that the handle allows.
func reenter(ctx context.Context, t *testing.T, l *conclave.FencedLock, f conclave.Fence) {
	if again, err := l.Lock(ctx); err != nil || again != f {
		t.Errorf("re-entry: %v %v, want %v", again, err, f)
	}
	if _, err := l.Lock(ctx); !errors.Is(err, conclave.ErrAcquireLimitReached) {
		t.Errorf("third hold: %v", err)
	}
	if err := l.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// moveLeadership transfers leadership until ctx ends.
func moveLeadership(ctx context.Context, g *Group, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for _, n := range g.Nodes {
				if s := n.Status(); s.Leader == s.ID {
					_ = n.TransferLeadership(ctx, 0) // fails if no other member is up to date
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// wantIdle checks on every member that nothing is held or queued.
func (g *Group) wantIdle(name string) {
	g.T.Helper()
	ctx := Bounded(g.T)
	for _, n := range g.Nodes {
		if list, err := Collect(n.Locks(ctx, name)); err != nil || len(list) != 0 {
			g.T.Errorf("still there: %+v %v", list, err)
		}
	}
}

// Lock is cancelled at random moments while others hold and release. No hold, waiter or
// goroutine remains. It counts goroutines, so that no other test may run beside it.
func TestLock_CancelledLeavesNothing(t *testing.T) {
	g := Start(t, 3)
	ctx := Bounded(t)
	goroutines := settledGoroutines(t)
	random := rand.New(rand.NewPCG(1, 2))
	delays := make([]time.Duration, 1000)
	for i := range delays {
		delays[i] = time.Duration(random.IntN(int(30 * time.Millisecond)))
	}
	var wg sync.WaitGroup
	var cancelled atomic.Int32
	for worker := range 10 {
		l := g.Nodes[worker%3].FencedLock("x")
		wg.Go(func() {
			for i := worker; i < len(delays); i += 10 {
				short, cancel := context.WithTimeout(ctx, delays[i])
				_, err := l.Lock(short)
				cancel()
				switch {
				case err == nil:
					if err := l.Unlock(ctx); err != nil {
						t.Error(err)
					}
				case errors.Is(err, context.DeadlineExceeded):
					cancelled.Add(1)
				default:
					t.Error(err)
				}
				if _, err := l.Fence(); !errors.Is(err, conclave.ErrNotHeld) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d of %d cancelled", cancelled.Load(), len(delays))
	// A withdrawal is committed before a later command of the same member.
	for _, n := range g.Nodes {
		l := n.FencedLock("x")
		MustLock(t, l)
		MustUnlock(t, l)
	}
	g.awaitIdle("x")
	awaitGoroutines(t, goroutines)
}

// awaitIdle blocks until nothing is held or queued: releases may still be sent in the
// background.
func (g *Group) awaitIdle(name string) {
	g.T.Helper()
	ctx := Bounded(g.T)
	for _, n := range g.Nodes {
		for {
			list, err := Collect(n.Locks(ctx, name))
			if err != nil {
				g.T.Fatalf("%v; still there: %+v", err, list)
			}
			if len(list) == 0 {
				break
			}
			Pass(5 * time.Millisecond)
		}
	}
}
