package virtualtime

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// taking starts a Lock of a set, and delivers when it was granted.
func taking(g *grouptest.Group, l *conclave.LockSet) <-chan attempt {
	result := make(chan attempt, 1)
	go func() {
		_, err := l.Lock(g.T.Context())
		result <- attempt{at: time.Now(), err: err}
	}()
	synctest.Wait()
	return result
}

// A holder that is cut by a partition loses the whole set by its own clock, before any of its names is granted to another
// owner: a name that it held exclusively to any owner, and one that it shared to writers, after the lock-delay.
func TestLockSet_HolderPartitioned(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		holder, other := g.Others(leader)[0], g.Others(leader)[1]
		s := grouptest.MustSession(g.T, g.Nodes[holder], &conclave.SessionConfig{TTL: ttl, LockDelay: lockDelay, NoChecks: true})
		set := s.LockSet([]string{"a", "b"}, conclave.Shared("r"))
		fence, err := set.Lock(g.T.Context())
		grouptest.Must(g.T, err)
		grouptest.Must(g.T, s.Renew(grouptest.Within(g.T, election)))
		renewed := time.Now()
		g.Net.Isolate(holder)
		n := g.Nodes[other]
		next := n.LockSet([]string{"r", "b"})
		waits := []<-chan attempt{writing(g, n.RWLock("a")), taking(g, next)}
		mustRLock(g, n.RWLock("r")) // beside it
		lost := set.Lost()
		<-lost
		wantAt(g.T, "the loss", time.Now(), deadlineOf(renewed))
		for _, name := range []string{"a", "b", "r"} {
			_, err := set.FenceOf(name)
			grouptest.WantError(g.T, err, conclave.ErrLockOwnershipLost)
		}
		for _, w := range waits {
			select {
			case got := <-w:
				g.T.Errorf("granted before the loss: %+v", got)
			default:
			}
		}
		got := <-waits[0]
		grouptest.Must(g.T, got.err)
		end := renewed.Add(ttl + lockDelay)
		wantBetween(g.T, "the grant of a name", got.at, end, end.Add(2*heartbeat))
		grouptest.WantError(g.T, set.Unlock(g.T.Context()), conclave.ErrLockOwnershipLost)
		select {
		case got := <-waits[1]:
			g.T.Errorf("a set beside a reader of one of its names: %+v", got)
		default:
		}
		info, err := n.FencedLock("b").Info(g.T.Context())
		if err != nil || info.Held || info.Delay != 0 {
			g.T.Errorf("a set that waits holds %+v, %v", info, err)
		}
		if a, err := n.FencedLock("a").Info(g.T.Context()); err != nil || a.Fence <= fence {
			g.T.Errorf("%+v, %v; want a fence after %v", a, err, fence)
		}
		g.Net.Rejoin(holder)
	})
}

// A node is killed while its set waits and has its names reserved. They are free for others when its session has ended.
func TestLockSet_KilledWhileReserved(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		waiter, n := g.Others(leader)[0], g.Nodes[g.Others(leader)[1]]
		held, single := n.FencedLock("b"), n.FencedLock("a")
		grouptest.MustLock(g.T, held)
		s := grouptest.MustSession(g.T, g.Nodes[waiter], &conclave.SessionConfig{TTL: ttl, LockDelay: lockDelay, NoChecks: true})
		taking(g, s.LockSet([]string{"a", "b"}))
		grouptest.AwaitWaiters(g.T, held, 1)
		for range 4 {
			grouptest.MustLock(g.T, single)
			grouptest.MustUnlock(g.T, single)
		}
		_, err := single.TryLock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrLocked)
		grouptest.Must(g.T, s.Renew(grouptest.Within(g.T, election)))
		renewed := time.Now()
		g.Kill(waiter)
		got := <-writing(g, n.RWLock("a"))
		grouptest.Must(g.T, got.err)
		wantBetween(g.T, "the grant of a name that was reserved", got.at, renewed, renewed.Add(ttl+2*heartbeat))
		grouptest.AwaitWaiters(g.T, held, 0)
		grouptest.MustUnlock(g.T, held)
		grouptest.MustLock(g.T, held)
	})
}

// A set that waits keeps its position and what was counted for it when the leader is killed.
func TestLockSet_LeaderKilled(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		n, other := g.Nodes[g.Others(leader)[0]], g.Nodes[g.Others(leader)[1]]
		held, single := n.FencedLock("b"), n.FencedLock("a")
		grouptest.MustLock(g.T, held)
		set := other.LockSet([]string{"a", "b"})
		took := taking(g, set)
		grouptest.AwaitWaiters(g.T, held, 1)
		for i := range 4 {
			if i == 2 {
				g.Kill(leader)
			}
			grouptest.MustLock(g.T, single)
			grouptest.MustUnlock(g.T, single)
		}
		later := writing(g, n.RWLock("a"))
		grouptest.AwaitWaiters(g.T, single, 2)
		grouptest.MustUnlock(g.T, held)
		grouptest.Must(g.T, (<-took).err)
		select {
		case got := <-later:
			g.T.Errorf("a later request passed a set a fifth time: %+v", got)
		default:
		}
		grouptest.Must(g.T, set.Unlock(g.T.Context()))
		grouptest.Must(g.T, (<-later).err)
	})
}

// A session without TTL outlives its process with its set. The same set of the process that attaches it claims it, with a
// new fence, ahead of all that wait.
func TestLockSet_Attached(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		first, second := g.Others(leader)[0], g.Others(leader)[1]
		s := grouptest.MustSession(g.T, g.Nodes[first], grouptest.Lasting())
		names := []string{"a", "b"}
		fence, err := s.LockSet(names, conclave.Shared("r")).Lock(g.T.Context())
		grouptest.Must(g.T, err)
		wrote := writing(g, g.Nodes[leader].RWLock("b"))
		g.Kill(first)
		pass(2 * time.Minute)
		s = grouptest.MustAttach(g.T, g.Nodes[second], s.ID())
		set := s.LockSet(names, conclave.Shared("r"))
		again, err := set.Lock(g.T.Context())
		if err != nil || again <= fence {
			g.T.Errorf("fence %v, %v after %v", again, err, fence)
		}
		if f, err := set.FenceOf("r"); err != nil || f != fence {
			g.T.Errorf("the shared name has fence %v, %v; want that of its phase, %v", f, err, fence)
		}
		select {
		case got := <-wrote:
			g.T.Errorf("a writer beside the set: %+v", got)
		default:
		}
		grouptest.Must(g.T, set.Unlock(g.T.Context()))
		grouptest.Must(g.T, (<-wrote).err)
	})
}

// While a member runs a build that does not know sets, no call for one has an effect. After the upgrade they work, beside
// what was held before.
func TestUpgrade_LockSet(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		set := g.Nodes[0].LockSet([]string{"a", "b"})
		_, err := set.Lock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		_, err = set.TryLock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		lasting := grouptest.MustSession(g.T, g.Nodes[0], grouptest.Lasting())
		grouptest.MustLock(g.T, lasting.FencedLock("a"))
		for _, i := range []int{1, 2} {
			g.Kill(i)
			g.Seams[i].FeatureLevel = wire.LevelSets
			g.Start(i)
		}
		pass(time.Minute)
		_, err = g.Nodes[1].LockSet([]string{"b", "c"}).TryLock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired) // of the member that is left
		g.Kill(0)
		g.Seams[0].FeatureLevel = wire.LevelSets
		g.Start(0)
		pass(time.Minute) // the leader raises the level
		wantLevel(g, 0, wire.LevelSets)
		set = g.Nodes[1].LockSet([]string{"a", "b"})
		_, err = set.TryLock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrLocked)
		took := taking(g, set)
		grouptest.Must(g.T, g.Nodes[2].CloseSession(g.T.Context(), lasting.ID()))
		grouptest.Must(g.T, (<-took).err)
	}, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.FeatureLevel = wire.LevelBounds }))
}
