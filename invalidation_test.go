package conclave

import (
	"context"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster"
)

// What a program sees, on every member, when a session ends in each of the ways
// in which one can.

// invalidation is one of them.
type invalidation struct {
	name     string
	ttl      time.Duration
	behavior Behavior
	pull     func(t *testing.T, g *testGroup, at int, s *Session, c *Check)
	survives bool // the process does
}

func invalidations() []invalidation {
	elsewhere := func(g *testGroup, at int) *Node { return g.nodes[(at+1)%3] }
	return []invalidation{
		{"closed by force", time.Minute, Release, func(t *testing.T, g *testGroup, at int, s *Session, _ *Check) {
			must(t, elsewhere(g, at).CloseSession(within(t, 20*time.Second), s.ID()))
		}, true},
		{"check fails", time.Minute, Delete, func(t *testing.T, _ *testGroup, _ int, _ *Session, c *Check) {
			must(t, c.Fail(within(t, 20*time.Second)))
		}, true},
		{"check is deregistered", NoTTL, Release, func(t *testing.T, _ *testGroup, _ int, _ *Session, c *Check) {
			must(t, c.Deregister(within(t, 20*time.Second)))
		}, true},
		{"TTL passes", time.Second, Delete, func(t *testing.T, g *testGroup, at int, s *Session, _ *Check) {
			g.kill(at)
			awaitEnded(t, elsewhere(g, at), s.ID())
			g.start(at)
		}, false},
		{"process starts anew", time.Minute, Release, func(_ *testing.T, g *testGroup, at int, _ *Session, _ *Check) {
			g.kill(at)
			g.start(at)
		}, false},
	}
}

func TestInvalidation(t *testing.T) {
	g := group(t, 3, nil)
	for i, how := range invalidations() {
		t.Run(how.name, func(t *testing.T) {
			at := i % 3
			observer := g.nodes[(at+2)%3]
			check := mustCheck(t, g.nodes[at], how.name, 0)
			s := mustSession(t, g.nodes[at], &SessionConfig{
				TTL: how.ttl, LockDelay: time.Minute, Behavior: how.behavior, Checks: []string{how.name},
			})
			mustHoldAs(t, s, how.name)
			theirs := observer.FencedLock(how.name + " and other")
			mustLock(t, theirs)
			ours := waitFor(t, s.FencedLock(theirs.name))
			stranger := waitFor(t, observer.FencedLock(how.name))

			how.pull(t, g, at, s, check)
			awaitEnded(t, observer, s.ID())
			<-s.Done()
			want := ErrClosed
			if how.survives {
				want = ErrSessionExpired
			}
			wantError(t, s.Err(), want)
			wantError(t, <-ours.err, want)
			awaitWaiters(t, theirs, 0)
			wantHeldBack(t, g, how, 1)
			stranger.cancel()
			wantError(t, <-stranger.err, context.Canceled)
			for _, n := range g.nodes {
				wantDelayed(t, n, how)
			}
		})
	}
}

func mustHoldAs(t *testing.T, s *Session, name string) {
	t.Helper()
	mustLock(t, s.FencedLock(name))
	mustLead(t, s.Election(name), "leader")
	mustTake(t, s.Semaphore(name, 2), 2)
	if _, err := s.node.KV().Acquire(within(t, 20*time.Second), name, []byte("value"), s.ID()); err != nil {
		t.Fatal(err)
	}
}

// waiting is a Lock that waits.
type waiting struct {
	cancel context.CancelFunc
	err    chan error
}

func waitFor(t *testing.T, l *FencedLock) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t, 60*time.Second))
	w := &waiting{cancel, make(chan error, 1)}
	go func() {
		_, err := l.Lock(ctx)
		w.err <- err
	}()
	awaitWaiters(t, l, 1)
	return w
}

// wantHeldBack fails unless every member sees that nobody holds any of it, and
// that nobody can yet.
func wantHeldBack(t *testing.T, g *testGroup, how invalidation, waiters int) {
	t.Helper()
	delayed := func(d time.Duration) bool { return d > 0 && d <= time.Minute }
	for i, n := range g.nodes {
		ctx := within(t, 20*time.Second)
		lock, err := n.FencedLock(how.name).Info(ctx)
		if err != nil || lock.Held || lock.Waiters != waiters || !delayed(lock.Delay) {
			t.Fatalf("member %d: %+v %v", i, lock, err)
		}
		if info := mustSemaphore(t, n.Semaphore(how.name, 2)); info.Available != 0 || len(info.Holders) != 0 || !delayed(info.Delay) {
			t.Fatalf("member %d: %+v", i, info)
		}
		_, err = n.Election(how.name).Leader(ctx)
		wantError(t, err, ErrNoLeader)
		e, err := n.KV().Get(ctx, how.name)
		if how.behavior == Delete {
			wantError(t, err, ErrKeyNotFound)
		} else if err != nil || string(e.Value) != "value" || e.LockIndex != 1 || e.Session != (SessionID{}) {
			t.Fatalf("member %d: %+v %v", i, e, err)
		}
	}
}

// wantDelayed fails unless the lock-delay keeps each of it from others.
func wantDelayed(t *testing.T, n *Node, how invalidation) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	awaitWaiters(t, n.FencedLock(how.name), 0)
	_, err := n.FencedLock(how.name).TryLock(ctx)
	wantError(t, err, ErrLockDelay)
	_, err = n.Semaphore(how.name, 2).TryAcquire(ctx, 1)
	wantError(t, err, ErrLockDelay)
	other := mustSession(t, n, nil)
	_, err = n.KV().Acquire(ctx, how.name, nil, other.ID())
	wantError(t, err, ErrLockDelay)
	must(t, other.Close(ctx))
}

// Whoever waits is granted when the lock-delay is over, by itself.
func TestLockDelayEnds(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, &SessionConfig{LockDelay: time.Second})
	f := mustLock(t, s.FencedLock("x"))
	mustLead(t, s.Election("x"), "")
	w := waitFor(t, n.FencedLock("x"))
	must(t, n.CloseSession(t.Context(), s.ID()))
	must(t, <-w.err)
	if info, err := n.FencedLock("x").Info(t.Context()); err != nil || info.Fence <= f || info.Delay != 0 {
		t.Fatalf("%+v %v", info, err)
	}
	mustLead(t, n.Election("x"), "")
}

// What an invalidation has left behind, and what lives, is the same after a
// change of leader, on a member that was sent a snapshot, and after the power of
// all was cut.
func TestInvalidationSurvives(t *testing.T) {
	g := group(t, 3, func(i int, c *Config, h *cluster.Seams) {
		shortLog(i, c, h)
		c.SessionTTL = time.Minute
	})
	how := invalidation{name: "x", behavior: Delete}
	leader := g.leader()
	away := (leader + 1) % 3
	stays := g.nodes[(leader+2)%3]
	kept := mustSession(t, stays, &SessionConfig{Name: "kept", TTL: NoTTL, LockDelay: time.Second, Behavior: Delete, Checks: []string{"gossip"}})
	mustHoldAs(t, kept, "kept")
	s := mustSession(t, g.nodes[leader], &SessionConfig{LockDelay: time.Minute, Behavior: Delete, Checks: NoChecks})
	mustHoldAs(t, s, "x")
	w := waitFor(t, stays.FencedLock("x"))

	g.kill(away)
	must(t, stays.CloseSession(within(t, 20*time.Second), s.ID()))
	busy(t, stays, 300)
	g.start(away)
	g.awaitApplied(away)
	g.wantInstalled(away, 1)
	wantHeldBack(t, g, how, 1)
	g.kill(leader)
	g.leader()
	g.start(leader)
	wantHeldBack(t, g, how, 1)
	if kept.Err() != nil {
		t.Fatal(kept.Err())
	}
	w.cancel()
	wantError(t, <-w.err, context.Canceled)

	g.closeAll()
	g.startAll()
	wantHeldBack(t, g, how, 0)
	id := kept.ID()
	for i, n := range g.nodes {
		info, ok := mustInfo(t, n, id)
		if !ok || info.Name != "kept" || info.TTL != NoTTL || info.LockDelay != time.Second || info.Behavior != Delete || len(info.Checks) != 1 {
			t.Fatalf("member %d: %v %+v", i, ok, info)
		}
		lock, err := n.FencedLock("kept").Info(within(t, 20*time.Second))
		if err != nil || lock.Session != id {
			t.Fatalf("member %d: %+v %v", i, lock, err)
		}
	}
}

// A member that is cut off skips, by a snapshot, the entries in which its waiters
// were granted permits and the lead, and in which a session without TTL was
// ended. It finds all of it in the state.
func TestSnapshotSkipsOutcomesOfAllKinds(t *testing.T) {
	var wires [3]cable
	g := group(t, 3, func(i int, c *Config, h *cluster.Seams) {
		shortLog(i, c, h)
		c.SessionTTL = time.Minute
		c.Dial = wires[i].dial
		c.Listener = listener{c.Listener, &wires[i]}
	})
	away := (g.leader() + 1) % 3
	cut, other := g.nodes[away], g.nodes[(away+1)%3]
	theirs := mustTake(t, other.Semaphore("x", 2), 2)
	lead := other.Election("x")
	mustLead(t, lead, "theirs")
	ended := mustSession(t, cut, lasting())
	mustLock(t, ended.FencedLock("x"))

	permits := startAcquire(t, cut.Semaphore("x", 2), 1)
	next := cut.Election("x")
	leads := make(chan error, 1)
	go func() {
		_, err := next.Campaign(within(t, 60*time.Second), []byte("ours"))
		leads <- err
	}()
	mustLock(t, cut.FencedLock("behind the campaign"))

	wires[away].unplug()
	must(t, theirs.Release(within(t, 20*time.Second)))
	must(t, lead.Resign(within(t, 20*time.Second)))
	must(t, other.CloseSession(within(t, 20*time.Second), ended.ID()))
	busy(t, other, 300)
	wires[away].plug()
	p := permits.granted(t)
	must(t, <-leads)
	<-ended.Done()
	wantError(t, ended.Err(), ErrSessionExpired)
	g.wantInstalled(away, 1)
	f, err := p.Fence()
	if info := mustSemaphore(t, other.Semaphore("x", 2)); err != nil || len(info.Holders) != 1 || info.Holders[0].Fence != f {
		t.Fatalf("%v %v %+v", f, err, info)
	}
	l, err := lead.Leader(within(t, 20*time.Second))
	if err != nil || string(l.Value) != "ours" || l.Node != cut.id {
		t.Fatalf("%+v %v", l, err)
	}
	must(t, p.Release(within(t, 20*time.Second)))
	must(t, next.Resign(within(t, 20*time.Second)))
}
