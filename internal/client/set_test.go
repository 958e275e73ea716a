package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// newSet is a set of the exclusive names x and y and the shared name z, unless cfg has names.
func newSet(t *testing.T, c *Client, cfg SetConfig) *Set {
	t.Helper()
	if c.group.Level() < wire.LevelSets {
		raise(t, c, wire.LevelSets)
	}
	if cfg.Exclusive == nil && cfg.Shared == nil {
		cfg.Exclusive, cfg.Shared = []string{"x", "y"}, []string{"z"}
	}
	cfg.Name = "x, y, z"
	s := new(Set)
	s.Init(c, cfg)
	return s
}

func underLease(l *Lease) SetConfig { return SetConfig{LockConfig: LockConfig{Lease: l}} }

func mustTake(t *testing.T, s *Set) uint64 {
	t.Helper()
	f, err := s.Acquire(t.Context(), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// wantSetFree wants the group to have none of the locks, and the handle no hold.
func wantSetFree(t *testing.T, g *fakeGroup, s *Set) {
	t.Helper()
	for _, name := range slices.Concat(s.parts.exclusive, s.parts.shared) {
		if v := g.lock(name); v != nil {
			t.Errorf("the group has %+v", v)
		}
	}
	if s.Holds() != 0 {
		t.Errorf("%d holds", s.Holds())
	}
}

// A set is one hold, with a fence for each shared name that others hold already.
func TestSet_TakenAsAWhole(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	s, reader := newSet(t, c, underLease(lease)), newRWLock(t, c, LockConfig{Lease: lease})
	reader.name = "z"
	phase := mustShare(t, reader)
	_, err := s.FenceOf("x")
	wantKind(t, err, NotHeld)
	fence := mustTake(t, s)
	for name, want := range map[string]uint64{"x": fence, "y": fence, "z": phase} {
		if v := g.lock(name); v == nil || !v.Held || v.Fence != want {
			t.Errorf("the group has %+v of %s, want fence %d", v, name, want)
		}
		if f, err := s.FenceOf(name); f != want || err != nil {
			t.Errorf("fence %d, %v of %s; want %d", f, err, name, want)
		}
	}
	if f, err := s.Fence(); f != fence || err != nil || s.Holds() != 1 || phase >= fence {
		t.Errorf("fence %d, %v after %d, %d holds", f, err, phase, s.Holds())
	}
	_, err = s.Acquire(t.Context(), false, nil)
	if !isCode(err, wire.Code_LOCKED) {
		t.Errorf("a second time: %v", err)
	}
	if err := reader.ReleaseShared(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := s.Release(t.Context(), nil); err != nil {
		t.Error(err)
	}
	wantKind(t, s.Release(t.Context(), nil), NotHeld)
	wantSetFree(t, g, s)
}

// Below the level a member would skip the command, so it is not submitted.
func TestSet_BelowLevel(t *testing.T) {
	c, g := newFake(t)
	raise(t, c, wire.LevelSets-1)
	s := new(Set)
	s.Init(c, SetConfig{Exclusive: []string{"x"}})
	before := g.last()
	for _, wait := range []bool{false, true} {
		_, err := s.Acquire(t.Context(), wait, nil)
		if !isCode(err, wire.Code_LEVEL) || g.last() != before {
			t.Errorf("got %v, want LEVEL, and nothing submitted", err)
		}
	}
}

func TestSet_Submitted(t *testing.T) {
	c, _ := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	cfg := underLease(lease)
	cfg.Label, cfg.MaxHold, cfg.RefuseDeadlock = "run 1", maxHold, true
	s := newSet(t, c, cfg)
	for _, wait := range []bool{false, true} {
		got := s.lockCommand(lease, nil, wanted{wait: wait}).GetLockSet()
		if got.GetWait() != wait || got.GetRefuseDeadlock() != wait || string(got.GetLabel()) != "run 1" || got.GetMaxHold() != int64(maxHold) ||
			!slices.Equal(got.GetNames(), []string{"x", "y"}) || !slices.Equal(got.GetShared(), []string{"z"}) {
			t.Errorf("%v", got)
		}
	}
	cmd := c.traced(s.releaseCommand(lease, grant{fence: 7}), []byte("span")).GetUnlockSet()
	if cmd.GetFence() != 7 || string(cmd.GetTrace()) != "span" {
		t.Errorf("%v", cmd)
	}
}

// A caller that leaves holds nothing, whatever its request has come to.
func TestSet_Abandoned(t *testing.T) {
	for name, test := range map[string]struct{ contended, early bool }{
		"before the grant":     {false, true},
		"after the grant":      {false, false},
		"before it was queued": {true, true},
		"while it is queued":   {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, g := newFake(t)
			lease := mustOpen(t, c, fakeTTL)
			s, first := newSet(t, c, underLease(lease)), newLock(c, lease, "y")
			if test.contended {
				mustAcquire(t, first)
			}
			if test.early {
				g.hold()
			}
			a := start(&s.Lock, lease)
			if !test.early {
				g.settle()
			}
			wantKind(t, a.abandon(&Fault{Kind: Interrupted}), Interrupted)
			g.release()
			if test.contended {
				if v := g.lock("y"); v == nil || v.Waiters != 0 {
					t.Errorf("the place in the queue was not withdrawn: %+v", v)
				}
				if err := first.Release(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			wantSetFree(t, g, s)
		})
	}
}

// A caller that leaves learns which name was in the way.
func TestSet_WaitNamesWhatIsInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newFake(t)
		defer c.StopRenewing()
		s, other := newSet(t, c, SetConfig{}), newLock(c, nil, "y")
		mustAcquire(t, other)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Acquire(ctx, true, nil)
		wantKind(t, err, Interrupted)
		if taken := err.(*Fault).Reply.GetSet().GetTaken(); len(taken) != 1 || taken[0].GetName() != 1 { //nolint:errorlint // it is not wrapped here
			t.Errorf("the fault names %v", taken)
		}
	})
}

// A handle does not find its own release in the way, though the group applies it after the next request.
func TestSet_RequestsOfHandleInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		g.set(func() { g.sent = true })
		s := newSet(t, c, underLease(mustOpen(t, c, time.Hour)))
		mustTake(t, s)
		g.hold()
		wantKind(t, s.Release(done(), nil), Unknown)
		took := calling(t.Context(), func(ctx context.Context, _ bool, tr *Trace) (uint64, error) { return s.Acquire(ctx, false, tr) })
		synctest.Wait()
		g.set(func() { slices.Reverse(g.queue) })
		g.release()
		if err := <-took; err != nil {
			t.Errorf("the handle holds nothing, and gets %v", err)
		}
	})
}

// A set is lost with its session, as one hold.
func TestSet_Lost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newFake(t)
		defer c.StopRenewing()
		var reported []string
		c.losses.report = func(name string, _ uint64) { reported = append(reported, name) }
		s := newSet(t, c, SetConfig{})
		mustTake(t, s)
		lease, err := c.ownLease(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lost := s.Lost()
		if err := c.CloseSession(t.Context(), lease.ID()); err != nil {
			t.Fatal(err)
		}
		<-lost
		_, err = s.FenceOf("z")
		wantKind(t, err, Lost)
		_, err = s.Acquire(t.Context(), true, nil)
		wantKind(t, err, Lost)
		wantKind(t, s.Release(t.Context(), nil), Lost)
		synctest.Wait()
		if !slices.Equal(reported, []string{"x, y, z"}) {
			t.Errorf("reported are %q", reported)
		}
		mustTake(t, s) // under the next session
		if err := s.Release(t.Context(), nil); err != nil {
			t.Error(err)
		}
		wantSetFree(t, g, s)
	})
}

// A set ends in time as a whole, and Extend moves its end.
func TestSet_MaxHold(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		cfg := SetConfig{LockConfig: LockConfig{MaxHold: maxHold}}
		s := newSet(t, c, cfg)
		wantKind(t, s.Extend(t.Context(), maxHold), NotHeld)
		mustTake(t, s)
		time.Sleep(maxHold / 2)
		extended := time.Now()
		if err := s.Extend(t.Context(), maxHold); err != nil {
			t.Fatal(err)
		}
		wantLostAt(t, s.Loss(), extended.Add(trustedHold))
		if v := g.lock("y"); v == nil || !v.Held {
			t.Error("the group has ended the hold before its holder")
		}
		_, err := s.FenceOf("x")
		wantOverdue(t, err)
		wantOverdue(t, s.Release(t.Context(), nil))
		mustTake(t, s) // once the group has ended the first hold
	})
}

// What is lost here is not kept by an Extend whose outcome comes later.
func TestSet_ExtendedTooLate(t *testing.T) {
	bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
		s := newSet(t, c, SetConfig{LockConfig: LockConfig{MaxHold: maxHold}})
		mustTake(t, s)
		g.set(func() { g.held, g.sent = true, true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantKind(t, s.Extend(ctx, 2*time.Second), Unknown)
		<-s.Lost()
		g.release()
		synctest.Wait()
		if again := g.last().GetExtend(); !again.GetSet() || again.GetFence() == 0 {
			t.Errorf("the last command is %v", g.last())
		}
	})
}

// A grant that does not fit the request is none, and is released.
func TestSet_GrantWithoutFences(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, fakeTTL)
	s := newSet(t, c, underLease(lease))
	a := newAcquisition(&s.Lock, lease)
	a.Deliver(wire.Ticket{Incarnation: lease.incarnation, Seq: 99}, &wire.Reply{Code: wire.Code_OK, Fence: 7}, false)
	if got := <-a.result; !isCode(got.err, wire.Code_INVALID) || s.Holds() != 0 {
		t.Errorf("%v, %d holds", got.err, s.Holds())
	}
	if got := g.last().GetUnlockSet().GetFence(); got != 7 {
		t.Errorf("the last command is %v", g.last())
	}
}
