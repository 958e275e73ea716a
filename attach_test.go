package conclave

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
)

// belongings is what a session holds in these tests: one of each kind.
type belongings struct {
	lock, lead, permits Fence
}

func mustHold(t *testing.T, s *Session) belongings {
	t.Helper()
	b := belongings{lock: mustLock(t, s.FencedLock("x")), lead: mustLead(t, s.Election("x"), "earlier")}
	f, err := mustTake(t, s.Semaphore("x", 3), 2).Fence()
	if err != nil {
		t.Fatal(err)
	}
	b.permits = f
	if _, err := s.node.KV().Acquire(within(t, 20*time.Second), "x", []byte("earlier"), s.ID()); err != nil {
		t.Fatal(err)
	}
	return b
}

func mustAttach(t *testing.T, n *Node, id SessionID) *Session {
	t.Helper()
	s, err := n.AttachSession(within(t, 20*time.Second), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A process is killed and its session goes on in another one: nobody can come
// between, and whoever takes over does so under new fences.
func TestAttachAfterItsProcessWasKilled(t *testing.T) {
	g := group(t, 3, func(_ int, c *Config, _ *cluster.Seams) { c.SessionTTL = time.Minute })
	id := mustSession(t, g.nodes[0], lasting()).ID()
	earlier := mustHold(t, g.nodes[0].session(wire.ID(id)))
	_, err := g.nodes[1].AttachSession(t.Context(), id)
	wantError(t, err, ErrLocked)
	g.kill(0)
	stranger := g.nodes[2].FencedLock("x")
	waiting := make(chan error, 1)
	go func() {
		_, err := stranger.Lock(within(t, 60*time.Second))
		waiting <- err
	}()
	awaitWaiters(t, g.nodes[1].FencedLock("x"), 1)
	g.start(0) // now the group knows that the earlier process is gone
	if info, ok := mustInfo(t, g.nodes[2], id); !ok || info.TTL != NoTTL || info.Remaining != 0 {
		t.Fatalf("%v %+v", ok, info)
	}

	s := mustAttach(t, g.nodes[1], id)
	if again := mustAttach(t, g.nodes[1], id); again != s {
		t.Fatal("two sessions of one ID in one node")
	}
	_, err = g.nodes[0].AttachSession(t.Context(), id)
	wantError(t, err, ErrLocked)
	for i, n := range g.nodes {
		info, err := n.FencedLock("x").Info(within(t, 20*time.Second))
		if err != nil || info.Session != id || info.Fence != earlier.lock {
			t.Fatalf("member %d: %+v %v", i, info, err)
		}
		_, err = n.Semaphore("x", 3).TryAcquire(t.Context(), 2)
		wantError(t, err, ErrLocked)
	}
	lock := s.FencedLock("x")
	if f, err := lock.TryLock(t.Context()); err != nil || f <= earlier.lock {
		t.Fatal(f, err)
	}
	lead := s.Election("x")
	f := mustLead(t, lead, "later")
	if f <= earlier.lead {
		t.Fatalf("fence %v after %v", f, earlier.lead)
	}
	wantLeads(t, lead, "later", f)
	p := mustTake(t, s.Semaphore("x", 3), 2)
	if f, err := p.Fence(); err != nil || f <= earlier.permits {
		t.Fatal(f, err)
	}
	if info := mustSemaphore(t, s.Semaphore("x", 3)); info.Available != 1 || len(info.Holders) != 1 {
		t.Fatalf("%+v", info)
	}
	must(t, p.Release(t.Context()))
	mustUnlock(t, lock)
	must(t, <-waiting)
	must(t, s.Close(t.Context()))
}

// The same through a restart of the whole group, after a farewell.
func TestAttachAfterARestart(t *testing.T) {
	g := group(t, 1, nil)
	s := mustSession(t, g.nodes[0], &SessionConfig{TTL: NoTTL, LockDelay: time.Minute})
	earlier := mustHold(t, s)
	ended := mustSession(t, g.nodes[0], &SessionConfig{TTL: time.Hour})
	must(t, g.nodes[0].Close(t.Context()))
	<-s.Done()
	g.nodes[0] = nil
	g.start(0)
	n := g.nodes[0]
	if _, ok := mustInfo(t, n, ended.ID()); ok {
		t.Fatal("a session with a TTL outlives its process")
	}
	s = mustAttach(t, n, s.ID())
	if f := mustLock(t, s.FencedLock("x")); f <= earlier.lock {
		t.Fatalf("fence %v after %v", f, earlier.lock)
	}
	if e, err := n.KV().Get(t.Context(), "x"); err != nil || e.Session != s.ID() {
		t.Fatalf("%+v %v", e, err)
	}
	must(t, s.Close(t.Context()))
	mustLock(t, n.FencedLock("x")) // no lock-delay
}

func TestAttachRefused(t *testing.T) {
	g := group(t, 2, nil)
	n, other := g.nodes[0], g.nodes[1]
	_, err := n.AttachSession(t.Context(), SessionID{1})
	wantError(t, err, ErrSessionNotFound)
	_, err = n.AttachSession(t.Context(), SessionID{})
	wantError(t, err, ErrSessionNotFound)
	mortal := mustSession(t, n, nil)
	_, err = other.AttachSession(t.Context(), mortal.ID())
	wantError(t, err, ErrInvalid)
	if s := mustAttach(t, n, mortal.ID()); s != mortal {
		t.Fatal("a second session for what the node has")
	}
	closed := mustSession(t, n, lasting())
	must(t, closed.Close(t.Context()))
	_, err = n.AttachSession(t.Context(), closed.ID())
	wantError(t, err, ErrSessionNotFound)
}

func TestAttachAtOnceByMany(t *testing.T) {
	n := alone(t)
	id := mustSession(t, n, lasting()).ID()
	must(t, n.deregister(t.Context()))
	n.part(n.member.Status().Incarnation)
	var callers sync.WaitGroup
	got := make([]*Session, 32)
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
			t.Fatal("two sessions of one ID in one node")
		}
	}
	for range 8 {
		callers.Go(func() {
			if err := got[0].Close(t.Context()); err != nil {
				t.Error(err)
			}
			if _, ok := mustInfo(t, n, id); ok {
				t.Error("it is closed and there")
			}
		})
	}
	callers.Wait()
}

// Where a session is attached, its checks are those of the member there.
func TestAttachLooksAtTheChecks(t *testing.T) {
	g := group(t, 2, nil)
	mustCheck(t, g.nodes[0], "disk", 0)
	id := mustSession(t, g.nodes[0], &SessionConfig{TTL: NoTTL, Checks: []string{"disk"}}).ID()
	must(t, g.nodes[0].deregister(t.Context())) // its process is gone, for the group
	_, err := g.nodes[1].AttachSession(t.Context(), id)
	wantError(t, err, ErrInvalid)
	check := mustCheck(t, g.nodes[1], "disk", 0)
	must(t, check.Fail(t.Context()))
	_, err = g.nodes[1].AttachSession(t.Context(), id)
	wantError(t, err, ErrCheckCritical)
	must(t, check.Warn(t.Context()))
	s := mustAttach(t, g.nodes[1], id)
	must(t, check.Fail(t.Context()))
	<-s.Done()
	awaitEnded(t, g.nodes[1], id)
}

// A process that the group has forgotten finds out, lets go of its sessions
// without TTL, which live on, and can have them back.
func TestForgottenProcessParts(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, lasting())
	lock := s.FencedLock("x")
	f := mustLock(t, lock)
	must(t, n.deregister(t.Context())) // the group forgets it
	wantError(t, s.Renew(t.Context()), ErrSessionExpired)
	<-s.Done()
	<-lock.Lost()
	if err := s.Close(t.Context()); !errors.Is(err, errParted) {
		t.Fatalf("closing what lives on elsewhere: %v", err)
	}
	wantError(t, lock.Unlock(t.Context()), ErrLockOwnershipLost)
	_, err := n.FencedLock("x").TryLock(t.Context())
	wantError(t, err, ErrLocked)
	back := mustAttach(t, n, s.ID())
	if back == s || s.Err() == nil {
		t.Fatal("a session that had ended is alive")
	}
	if again := mustLock(t, back.FencedLock("x")); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
	must(t, n.CloseSession(t.Context(), back.ID()))
	<-back.Done()
}

// The close of a session without TTL gets through although the group forgets the
// process before it comes.
func TestCloseOfAForgottenProcess(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, lasting())
	s.end(fmt.Errorf("%w: %w", ErrSessionExpired, errClosedHere)) // the first half of Close
	must(t, n.deregister(t.Context()))
	must(t, s.Close(t.Context()))
	if _, ok := mustInfo(t, n, s.ID()); ok {
		t.Fatal("it was not closed")
	}
}

// A process is cut off for so long that its session is attached elsewhere. It
// goes on believing in it, as a session without TTL has no deadline, and lets go
// when it hears of the others again. What it gave back meanwhile does no harm to
// whoever has it now.
func TestAttachWhileItsProcessIsCutOff(t *testing.T) {
	var wires [3]cable
	g := group(t, 3, func(i int, c *Config, h *cluster.Seams) {
		c.Dial = wires[i].dial
		c.Listener = listener{c.Listener, &wires[i]}
		h.IncarnationTTL = time.Second
	})
	away := (g.leader() + 1) % 3
	cut, other := g.nodes[away], g.nodes[(away+1)%3]
	s := mustSession(t, cut, lasting())
	kept, given := s.FencedLock("kept"), s.FencedLock("given")
	mustLock(t, given)
	f := mustLock(t, kept)
	wires[away].unplug()
	wantError(t, given.Unlock(expired), ErrUnknown)
	attached, err := other.AttachSession(within(t, 20*time.Second), s.ID())
	for errors.Is(err, ErrLocked) { // until the group has forgotten its process
		attached, err = other.AttachSession(within(t, 20*time.Second), s.ID())
	}
	must(t, err)
	if got, err := kept.Fence(); err != nil || got != f || s.Err() != nil {
		t.Fatal(got, err, s.Err())
	}
	again := attached.FencedLock("kept")
	if next := mustLock(t, again); next <= f {
		t.Fatalf("fence %v after %v", next, f)
	}
	mustLock(t, attached.FencedLock("given"))

	wires[away].plug()
	<-s.Done()
	wantError(t, s.Err(), ErrSessionExpired)
	wantError(t, kept.Unlock(t.Context()), ErrLockOwnershipLost)
	mustLock(t, cut.FencedLock("behind what it had sent"))
	for _, name := range []string{"kept", "given"} {
		info, err := other.FencedLock(name).Info(within(t, 20*time.Second))
		if err != nil || info.Session != s.ID() || info.Node != other.id {
			t.Fatalf("%+v %v", info, err)
		}
	}
	mustUnlock(t, again)
}
