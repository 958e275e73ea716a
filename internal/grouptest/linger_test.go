package grouptest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// Handles that linger and handles that do not, on all nodes, while calls are lost and
// repeated and leadership moves: one holder at a time, and each fence of the lock is
// larger than the one before.
func TestLinger_Stress(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, FaultyNetwork)
	g.AwaitLingering()
	ctx, stop := context.WithCancel(Bounded(t))
	var moving, users sync.WaitGroup
	moving.Go(func() { moveLeadership(ctx, g, 200*time.Millisecond) })
	var ledger Ledger
	for i := range 12 {
		var opts []conclave.LockOption
		if i%4 != 0 {
			opts = []conclave.LockOption{conclave.Linger(lingering)}
		}
		users.Go(func() {
			cycles, end := context.WithCancel(ctx)
			defer end()
			n := 0
			ledger.Work(cycles, t, g.Nodes[i%3], "x", func() {
				if n++; n == 100 {
					end()
				}
			}, opts...)
		})
	}
	users.Wait()
	stop()
	moving.Wait()
	if n := ledger.Refused(); n > 0 {
		t.Errorf("%d writes with an old fence", n)
	}
}

// A node that closes gives the locks that it keeps to others at once.
func TestLinger_Close(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, LongElections) // which bound a shutdown
	g.AwaitLingering()
	kept := g.Nodes[1].FencedLock("x", conclave.Linger(time.Hour))
	before := MustLock(t, kept)
	MustUnlock(t, kept)
	g.Close(1)
	if after := MustLock(t, g.Nodes[2].FencedLock("x")); after <= before {
		t.Errorf("fence %v after %v", after, before)
	}
}

// Another node's request ends a tenure long before the time to linger does.
func TestLinger_Recall(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	g.AwaitLingering()
	var last conclave.Fence
	for i := range 30 {
		l := g.Nodes[i%3].FencedLock("x", conclave.Linger(time.Hour))
		for range 20 {
			f := MustLock(t, l)
			if f <= last {
				t.Fatalf("fence %v after %v", f, last)
			}
			last = f
			MustUnlock(t, l)
		}
	}
}

func TestLinger_Invalid(t *testing.T) {
	t.Parallel()
	g := Start(t, 1)
	for _, d := range []time.Duration{-1, time.Hour + 1} {
		_, err := g.Nodes[0].FencedLock("x", conclave.Linger(d)).Lock(Bounded(t))
		WantError(t, err, conclave.ErrInvalid)
	}
}
