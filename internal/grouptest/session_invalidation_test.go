package grouptest

import (
	"context"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// invalidation is a way in which a session is invalidated.
type invalidation struct {
	name       string
	ttl        time.Duration
	behavior   conclave.Behavior
	invalidate func(t *testing.T, g *Group, at int, s *conclave.Session, c *conclave.Check)
	survives   bool // the process
}

func invalidations() []invalidation {
	elsewhere := func(g *Group, at int) *conclave.Node { return g.Nodes[(at+1)%3] }
	return []invalidation{
		{"closed by force", time.Minute, conclave.ReleaseKeys, func(t *testing.T, g *Group, at int, s *conclave.Session, _ *conclave.Check) {
			Must(t, elsewhere(g, at).CloseSession(Bounded(t), s.ID()))
		}, true},
		{"check fails", time.Minute, conclave.DeleteKeys, func(t *testing.T, _ *Group, _ int, _ *conclave.Session, c *conclave.Check) {
			Must(t, c.Fail(Bounded(t)))
		}, true},
		{"check is deregistered", conclave.NoTTL, conclave.ReleaseKeys, func(t *testing.T, _ *Group, _ int, _ *conclave.Session, c *conclave.Check) {
			Must(t, c.Deregister(Bounded(t)))
		}, true},
		{"TTL passes", 10 * time.Second, conclave.DeleteKeys, func(t *testing.T, g *Group, at int, s *conclave.Session, _ *conclave.Check) {
			g.Kill(at)
			AwaitEnded(t, elsewhere(g, at), s.ID())
			g.Start(at)
		}, false},
		{"process restarted", time.Minute, conclave.ReleaseKeys, func(_ *testing.T, g *Group, at int, _ *conclave.Session, _ *conclave.Check) {
			g.Kill(at)
			g.Start(at)
		}, false},
	}
}

// The state on every member after each kind of invalidation.
func TestInvalidation(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	for i, how := range invalidations() {
		t.Run(how.name, func(t *testing.T) {
			at := i % 3
			observer := g.Nodes[(at+2)%3]
			check := MustCheck(t, g.Nodes[at], how.name, 0)
			s := MustSession(t, g.Nodes[at], &conclave.SessionConfig{
				TTL: how.ttl, LockDelay: time.Minute, Behavior: how.behavior, Checks: []string{how.name},
			})
			mustHoldAs(t, g.Nodes[at], s, how.name)
			theirs := observer.FencedLock(how.name + " and other")
			MustLock(t, theirs)
			ours := StartLock(t, s.FencedLock(how.name+" and other"))
			stranger := StartLock(t, observer.FencedLock(how.name))

			how.invalidate(t, g, at, s, check)
			AwaitEnded(t, observer, s.ID())
			<-s.Done()
			want := conclave.ErrClosed
			if how.survives {
				want = conclave.ErrSessionExpired
			}
			WantError(t, s.Err(), want)
			WantError(t, <-ours.Err, want)
			AwaitWaiters(t, theirs, 0)
			wantInLockDelay(t, g, how, 1)
			stranger.Cancel()
			WantError(t, <-stranger.Err, context.Canceled)
			for _, n := range g.Nodes {
				wantDelayed(t, n, how)
			}
		})
	}
}

func mustHoldAs(t *testing.T, n *conclave.Node, s *conclave.Session, name string) {
	t.Helper()
	MustLock(t, s.FencedLock(name))
	MustCampaign(t, s.Election(name), "leader")
	MustAcquire(t, s.Semaphore(name, 2), 2)
	if _, err := n.KV().Acquire(Bounded(t), name, []byte("value"), s.ID()); err != nil {
		t.Fatal(err)
	}
}

// wantInLockDelay checks that on every member nothing of it is held and all of it is in
// its lock-delay.
func wantInLockDelay(t *testing.T, g *Group, how invalidation, waiters int) {
	t.Helper()
	delayed := func(d time.Duration) bool { return d > 0 && d <= time.Minute }
	for i, n := range g.Nodes {
		ctx := Bounded(t)
		lock, err := n.FencedLock(how.name).Info(ctx)
		if err != nil || lock.Held || lock.Waiters != waiters || !delayed(lock.Delay) {
			t.Fatalf("member %d: %+v %v", i, lock, err)
		}
		if info := SemaphoreInfo(t, n.Semaphore(how.name, 2)); info.Available != 0 || len(info.Holders) != 0 || !delayed(info.Delay) {
			t.Fatalf("member %d: %+v", i, info)
		}
		_, err = n.Election(how.name).Leader(ctx)
		WantError(t, err, conclave.ErrNoLeader)
		e, err := n.KV().Get(ctx, how.name)
		if how.behavior == conclave.DeleteKeys {
			WantError(t, err, conclave.ErrKeyNotFound)
		} else if err != nil || string(e.Value) != "value" || e.LockIndex != 1 || e.Session != (conclave.SessionID{}) {
			t.Fatalf("member %d: %+v %v", i, e, err)
		}
	}
}

// wantDelayed checks that nothing of it can be acquired during the lock-delay.
func wantDelayed(t *testing.T, n *conclave.Node, how invalidation) {
	t.Helper()
	ctx := Bounded(t)
	AwaitWaiters(t, n.FencedLock(how.name), 0)
	_, err := n.FencedLock(how.name).TryLock(ctx)
	WantError(t, err, conclave.ErrLockDelay)
	_, err = n.Semaphore(how.name, 2).TryAcquire(ctx, 1)
	WantError(t, err, conclave.ErrLockDelay)
	other := MustSession(t, n, nil)
	_, err = n.KV().Acquire(ctx, how.name, nil, other.ID())
	WantError(t, err, conclave.ErrLockDelay)
	Must(t, other.Close(ctx))
}

// A waiter is granted when the lock-delay has passed.
func TestLockDelay_Ends(t *testing.T) {
	t.Parallel()
	n := Alone(t)
	s := MustSession(t, n, &conclave.SessionConfig{LockDelay: time.Second})
	f := MustLock(t, s.FencedLock("x"))
	MustCampaign(t, s.Election("x"), "")
	w := StartLock(t, n.FencedLock("x"))
	Must(t, n.CloseSession(t.Context(), s.ID()))
	Must(t, <-w.Err)
	if info, err := n.FencedLock("x").Info(t.Context()); err != nil || info.Fence <= f || info.Delay != 0 {
		t.Fatalf("%+v %v", info, err)
	}
	MustCampaign(t, n.Election("x"), "")
}

// The effects of an invalidation, and sessions that are alive, persist across a change
// of leader, a snapshot, and a kill of all members.
func TestInvalidation_Persists(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, ShortLog, MemoryNetwork, PoweredDisks)
	how := invalidation{name: "x", behavior: conclave.DeleteKeys}
	leader := g.Leader()
	away := (leader + 1) % 3
	stays := g.Nodes[(leader+2)%3]
	kept := MustSession(t, stays, &conclave.SessionConfig{Name: "kept", TTL: conclave.NoTTL, LockDelay: time.Second, Behavior: conclave.DeleteKeys, Checks: []string{"gossip"}})
	mustHoldAs(t, stays, kept, "kept")
	s := MustSession(t, g.Nodes[leader], &conclave.SessionConfig{LockDelay: time.Minute, Behavior: conclave.DeleteKeys, NoChecks: true})
	mustHoldAs(t, g.Nodes[leader], s, "x")
	w := StartLock(t, stays.FencedLock("x"))

	g.Kill(away)
	Must(t, stays.CloseSession(Bounded(t), s.ID()))
	Busy(t, stays, 300)
	g.Start(away)
	g.AwaitApplied(away)
	g.WantInstalled(away, 1)
	wantInLockDelay(t, g, how, 1)
	g.Kill(leader)
	g.Leader()
	g.Start(leader)
	wantInLockDelay(t, g, how, 1)
	if kept.Err() != nil {
		t.Fatal(kept.Err())
	}
	w.Cancel()
	WantError(t, <-w.Err, context.Canceled)

	g.KillAll()
	g.Start(g.All()...)
	wantInLockDelay(t, g, how, 0)
	id := kept.ID()
	for i, n := range g.Nodes {
		info, ok := FindSession(t, n, id)
		if !ok || info.Name != "kept" || info.TTL != conclave.NoTTL || info.LockDelay != time.Second || info.Behavior != conclave.DeleteKeys || len(info.Checks) != 1 {
			t.Fatalf("member %d: %v %+v", i, ok, info)
		}
		lock, err := n.FencedLock("kept").Info(Bounded(t))
		if err != nil || lock.Session != id {
			t.Fatalf("member %d: %+v %v", i, lock, err)
		}
	}
}
