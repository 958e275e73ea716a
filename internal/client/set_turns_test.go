package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

func newSharedSet(t *testing.T, c *Client) *Set {
	t.Helper()
	return newSet(t, c, SetConfig{Shared: []string{"x", "y"}})
}

// Calls of one handle take turns, though the group would grant the names to each of them.
func TestSet_SharedOnlyTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		s, other := newSharedSet(t, c), newSharedSet(t, c)
		fence := mustTake(t, s)
		mustTake(t, other) // another handle
		if v := g.lock("x"); v.Shared != 2 {
			t.Errorf("%+v", v)
		}
		_, err := s.Acquire(t.Context(), false, nil)
		if !isCode(err, wire.Code_LOCKED) {
			t.Errorf("a second time: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.Acquire(ctx, true, nil)
		wantKind(t, err, Interrupted)
		second, third := calling(t.Context(), s.Acquire), calling(t.Context(), s.Acquire)
		synctest.Wait()
		for range 2 {
			if v := g.lock("x"); v.Shared != 2 || s.Holds() != 1 {
				t.Errorf("%+v, %d holds", v, s.Holds())
			}
			if err := s.Release(t.Context(), nil); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			select {
			case err = <-second:
			case err = <-third:
			default:
				t.Fatal("neither of the two was granted")
			}
			if f, fault := s.Fence(); err != nil || fault != nil || f <= fence {
				t.Errorf("%v; fence %d after %d, %v", err, f, fence, fault)
			}
		}
		for _, l := range []*Set{s, other} {
			if err := l.Release(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
		wantSetFree(t, g, s)
	})
}

// A request that fails ends its turn.
func TestSet_TurnEndsWithFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newFake(t)
		defer c.StopRenewing()
		s, writer := newSharedSet(t, c), newLock(c, nil, "y")
		mustAcquire(t, writer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := calling(ctx, s.Acquire)
		synctest.Wait()
		next := calling(t.Context(), s.Acquire)
		wantKind(t, <-first, Interrupted)
		if err := writer.Release(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := <-next; err != nil {
			t.Error(err)
		}
	})
}

// A call that waits for its turn learns of the loss of what it waits for.
func TestSet_LostWhileAnotherCallWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		lease := mustOpen(t, c, time.Hour)
		s := newSet(t, c, SetConfig{LockConfig: LockConfig{Lease: lease}, Shared: []string{"x"}})
		g.hold()
		first := calling(t.Context(), s.Acquire)
		synctest.Wait()
		next := calling(t.Context(), s.Acquire) // before there is anything to lose
		synctest.Wait()
		g.release()
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		lease.end(endedByGroup(), lost)
		wantKind(t, <-next, Lost)
		wantKind(t, s.Release(t.Context(), nil), Lost)
		_, err := s.Acquire(t.Context(), true, nil)
		wantKind(t, err, Expired)
	})
}

// A call that waits for its turn when the client ends, or begins later, returns that as with exclusive names.
func TestSet_TurnsEndWithClient(t *testing.T) {
	for name, cfg := range map[string]SetConfig{"exclusive": {Exclusive: []string{"x"}}, "shared": {Shared: []string{"x"}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newFake(t)
				defer c.StopRenewing()
				s := newSet(t, c, cfg)
				mustTake(t, s)
				next := calling(t.Context(), s.Acquire)
				synctest.Wait()
				c.BeginShutdown()
				c.EndLeases()
				wantKind(t, <-next, Closed)
				for _, wait := range []bool{false, true} {
					_, err := s.Acquire(t.Context(), wait, nil)
					wantKind(t, err, Closed)
				}
			})
		})
	}
}
