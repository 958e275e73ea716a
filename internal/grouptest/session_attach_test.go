package grouptest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// holds are the fences of a session's holds, one of each kind.
type holds struct {
	lock, lead, permits conclave.Fence
}

func mustHold(t *testing.T, n *conclave.Node, s *conclave.Session) holds {
	t.Helper()
	b := holds{lock: MustLock(t, s.FencedLock("x")), lead: MustCampaign(t, s.Election("x"), "earlier")}
	f, err := MustAcquire(t, s.Semaphore("x", 3), 2).Fence()
	if err != nil {
		t.Fatal(err)
	}
	b.permits = f
	if _, err := n.KV().Acquire(Bounded(t), "x", []byte("earlier"), s.ID()); err != nil {
		t.Fatal(err)
	}
	return b
}

// A process is killed and its session continues in another one: no other owner is
// granted its holds, which the new process claims with new fences.
func TestAttach_ProcessKilled(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	first := MustSession(t, g.Nodes[0], Lasting())
	id := first.ID()
	earlier := mustHold(t, g.Nodes[0], first)
	_, err := g.Nodes[1].AttachSession(t.Context(), id)
	WantError(t, err, conclave.ErrSessionBound)
	g.Kill(0)
	stranger := g.Nodes[2].FencedLock("x")
	waiting := make(chan error, 1)
	go func() {
		_, err := stranger.Lock(Bounded(t))
		waiting <- err
	}()
	AwaitWaiters(t, g.Nodes[1].FencedLock("x"), 1)
	g.Start(0) // now the group knows that the earlier process has ended
	if info, ok := FindSession(t, g.Nodes[2], id); !ok || info.TTL != conclave.NoTTL || info.Remaining != 0 {
		t.Fatalf("%v %+v", ok, info)
	}

	s := MustAttach(t, g.Nodes[1], id)
	if again := MustAttach(t, g.Nodes[1], id); again != s {
		t.Fatal("two Sessions with one ID in one node")
	}
	_, err = g.Nodes[0].AttachSession(t.Context(), id)
	WantError(t, err, conclave.ErrSessionBound)
	for i, n := range g.Nodes {
		info, err := n.FencedLock("x").Info(Bounded(t))
		if err != nil || info.Session != id || info.Fence != earlier.lock {
			t.Fatalf("member %d: %+v %v", i, info, err)
		}
		_, err = n.Semaphore("x", 3).TryAcquire(t.Context(), 2)
		WantError(t, err, conclave.ErrLocked)
	}
	lock := s.FencedLock("x")
	if f, err := lock.TryLock(t.Context()); err != nil || f <= earlier.lock {
		t.Fatal(f, err)
	}
	lead := s.Election("x")
	f := MustCampaign(t, lead, "later")
	if f <= earlier.lead {
		t.Fatalf("fence %v after %v", f, earlier.lead)
	}
	WantLeader(t, g.Nodes[1], lead, "later", f)
	p := MustAcquire(t, s.Semaphore("x", 3), 2)
	if f, err := p.Fence(); err != nil || f <= earlier.permits {
		t.Fatal(f, err)
	}
	if info := SemaphoreInfo(t, s.Semaphore("x", 3)); info.Available != 1 || len(info.Holders) != 1 {
		t.Fatalf("%+v", info)
	}
	Must(t, p.Release(t.Context()))
	MustUnlock(t, lock)
	Must(t, <-waiting)
	Must(t, s.Close(t.Context()))
}

// What a session was left with is claimed with as many permits, though a Resize has left fewer meanwhile, and can be released then.
func TestAttach_ClaimsMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	g := Start(t, 1)
	first := MustSession(t, g.Nodes[0], Lasting())
	MustAcquire(t, first.Semaphore("x", 5), 4)
	Must(t, g.Nodes[0].Semaphore("x", 5).Resize(t.Context(), 3))
	_, err := first.Semaphore("x", 3).Acquire(t.Context(), 4) // its own process has claimed nothing
	WantError(t, err, conclave.ErrTooLarge)
	g.Kill(0)
	g.Start(0)
	n, s := g.Nodes[0], MustAttach(t, g.Nodes[0], first.ID())
	_, err = s.Semaphore("x", 3).Acquire(t.Context(), 5)
	WantError(t, err, conclave.ErrTooLarge)
	_, err = n.Semaphore("x", 3).Acquire(t.Context(), 4)
	WantError(t, err, conclave.ErrTooLarge)
	p := MustAcquire(t, s.Semaphore("x", conclave.GroupLimit), 4)
	if info := SemaphoreInfo(t, n.Semaphore("x", 3)); info.Available != -1 || len(info.Holders) != 1 {
		t.Errorf("%+v", info)
	}
	Must(t, p.Release(t.Context()))
	_, err = s.Semaphore("x", 3).Acquire(t.Context(), 4)
	WantError(t, err, conclave.ErrTooLarge)
	MustAcquire(t, n.Semaphore("x", 3), 3)
}

// The same after a graceful shutdown and restart of the whole group.
func TestAttach_GroupRestarted(t *testing.T) {
	t.Parallel()
	g := Start(t, 1)
	s := MustSession(t, g.Nodes[0], &conclave.SessionConfig{TTL: conclave.NoTTL, LockDelay: time.Minute})
	earlier := mustHold(t, g.Nodes[0], s)
	ended := MustSession(t, g.Nodes[0], &conclave.SessionConfig{TTL: time.Hour})
	Must(t, g.Nodes[0].Close(t.Context()))
	<-s.Done()
	g.Nodes[0] = nil
	g.Start(0)
	n := g.Nodes[0]
	if _, ok := FindSession(t, n, ended.ID()); ok {
		t.Fatal("a session with a TTL has survived its process")
	}
	s = MustAttach(t, n, s.ID())
	if f := MustLock(t, s.FencedLock("x")); f <= earlier.lock {
		t.Fatalf("fence %v after %v", f, earlier.lock)
	}
	if e, err := n.KV().Get(t.Context(), "x"); err != nil || e.Session != s.ID() {
		t.Fatalf("%+v %v", e, err)
	}
	Must(t, s.Close(t.Context()))
	MustLock(t, n.FencedLock("x")) // no lock-delay
}

func TestAttach_Refused(t *testing.T) {
	t.Parallel()
	g := Start(t, 2)
	n, other := g.Nodes[0], g.Nodes[1]
	_, err := n.AttachSession(t.Context(), conclave.SessionID{1})
	WantError(t, err, conclave.ErrSessionNotFound)
	_, err = n.AttachSession(t.Context(), conclave.SessionID{})
	WantError(t, err, conclave.ErrSessionNotFound)
	mortal := MustSession(t, n, nil)
	_, err = other.AttachSession(t.Context(), mortal.ID())
	WantError(t, err, conclave.ErrInvalid)
	if s := MustAttach(t, n, mortal.ID()); s != mortal {
		t.Fatal("a second Session for a session of this node")
	}
	closed := MustSession(t, n, Lasting())
	Must(t, closed.Close(t.Context()))
	_, err = n.AttachSession(t.Context(), closed.ID())
	WantError(t, err, conclave.ErrSessionNotFound)
}

func TestAttach_Concurrent(t *testing.T) {
	t.Parallel()
	g := Start(t, 1)
	n := g.Nodes[0]
	s := MustSession(t, n, Lasting())
	id := s.ID()
	Must(t, g.Deregister(0))
	WantError(t, s.Renew(t.Context()), conclave.ErrSessionExpired) // the process learns of it
	var callers sync.WaitGroup
	got := make([]*conclave.Session, 32)
	for i := range got {
		callers.Go(func() {
			var err error
			if got[i], err = n.AttachSession(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	for _, s := range got {
		if s != got[0] {
			t.Fatal("two Sessions with one ID in one node")
		}
	}
	for range 8 {
		callers.Go(func() {
			if err := got[0].Close(t.Context()); err != nil {
				t.Error(err)
			}
			if _, ok := FindSession(t, n, id); ok {
				t.Error("the session is closed and still listed")
			}
		})
	}
	callers.Wait()
}

// After an attach a session depends on the checks of its new member.
func TestAttach_ChecksOfNewMember(t *testing.T) {
	t.Parallel()
	g := Start(t, 2)
	MustCheck(t, g.Nodes[0], "disk", 0)
	id := MustSession(t, g.Nodes[0], &conclave.SessionConfig{TTL: conclave.NoTTL, Checks: []string{"disk"}}).ID()
	Must(t, g.Deregister(0))
	_, err := g.Nodes[1].AttachSession(t.Context(), id)
	WantError(t, err, conclave.ErrInvalid)
	check := MustCheck(t, g.Nodes[1], "disk", 0)
	Must(t, check.Fail(t.Context()))
	_, err = g.Nodes[1].AttachSession(t.Context(), id)
	WantError(t, err, conclave.ErrCheckCritical)
	Must(t, check.Warn(t.Context()))
	s := MustAttach(t, g.Nodes[1], id)
	Must(t, check.Fail(t.Context()))
	<-s.Done()
	AwaitEnded(t, g.Nodes[1], id)
}

// A process learns that its registration has expired. Its sessions without a TTL end
// for it, stay alive in the group, and can be attached again.
func TestRegistration_ExpiredWithSessionWithoutTTL(t *testing.T) {
	t.Parallel()
	g := Start(t, 1)
	n := g.Nodes[0]
	s := MustSession(t, n, Lasting())
	lock := s.FencedLock("x")
	f := MustLock(t, lock)
	Must(t, g.Deregister(0))
	WantError(t, s.Renew(t.Context()), conclave.ErrSessionExpired)
	<-s.Done()
	<-lock.Lost()
	WantError(t, s.Close(t.Context()), conclave.ErrSessionExpired) // it is not bound to this process any more
	WantError(t, lock.Unlock(t.Context()), conclave.ErrLockOwnershipLost)
	_, err := n.FencedLock("x").TryLock(t.Context())
	WantError(t, err, conclave.ErrLocked)
	back := MustAttach(t, n, s.ID())
	if back == s || s.Err() == nil {
		t.Fatal("the ended Session is alive again")
	}
	if again := MustLock(t, back.FencedLock("x")); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
	Must(t, n.CloseSession(t.Context(), back.ID()))
	<-back.Done()
}

// A process is disconnected for so long that its session is attached elsewhere.
// Without a TTL the session has no local deadline; the process loses it when it
// reaches the group again. A release that it sent meanwhile does not affect the new
// owner.
func TestAttach_ProcessDisconnected(t *testing.T) {
	InBubble(t, 3, func(g *Group) {
		away := (g.Leader() + 1) % 3
		cut, other := g.Nodes[away], g.Nodes[(away+1)%3]
		s := MustSession(g.T, cut, Lasting())
		kept, given := s.FencedLock("kept"), s.FencedLock("given")
		MustLock(g.T, given)
		f := MustLock(g.T, kept)
		g.Disconnect(away)
		WantError(g.T, given.Unlock(Expired()), conclave.ErrUnknown)
		attached, err := other.AttachSession(Bounded(g.T), s.ID())
		for errors.Is(err, conclave.ErrSessionBound) { // until the registration of its process has expired
			Pass(5 * time.Millisecond)
			attached, err = other.AttachSession(Bounded(g.T), s.ID())
		}
		Must(g.T, err)
		if got, err := kept.Fence(); err != nil || got != f || s.Err() != nil {
			g.T.Fatal(got, err, s.Err())
		}
		again := attached.FencedLock("kept")
		if next := MustLock(g.T, again); next <= f {
			g.T.Fatalf("fence %v after %v", next, f)
		}
		MustLock(g.T, attached.FencedLock("given"))

		g.Net.Rejoin(away)
		<-s.Done()
		WantError(g.T, s.Err(), conclave.ErrSessionExpired)
		WantError(g.T, kept.Unlock(g.T.Context()), conclave.ErrLockOwnershipLost)
		MustLock(g.T, cut.FencedLock("after the pending release"))
		for _, name := range []string{"kept", "given"} {
			info, err := other.FencedLock(name).Info(Bounded(g.T))
			if err != nil || info.Session != s.ID() || info.Node != other.Status().ID {
				g.T.Fatalf("%+v %v", info, err)
			}
		}
		MustUnlock(g.T, again)
	}, Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.IncarnationTTL = 10 * time.Second }))
}
