package virtualtime

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

func mustRLock(g *grouptest.Group, l *conclave.RWLock) conclave.Fence {
	g.T.Helper()
	f, err := l.RLock(grouptest.Within(g.T, 5*election))
	grouptest.Must(g.T, err)
	return f
}

// writing starts a Lock, and delivers when it was granted.
func writing(g *grouptest.Group, l *conclave.RWLock) <-chan attempt {
	result := make(chan attempt, 1)
	go func() {
		_, err := l.Lock(g.T.Context())
		result <- attempt{at: time.Now(), err: err}
	}()
	synctest.Wait()
	return result
}

// A reader that is lost takes nothing from another one. Its lock-delay keeps writers waiting, until the
// largest one has passed, and no readers.
func TestRWLock_ReaderLost(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		lost, stays := g.Others(leader)[0], g.Others(leader)[1]
		session := func(i int, delay time.Duration) *conclave.Session {
			return grouptest.MustSession(g.T, g.Nodes[i], &conclave.SessionConfig{TTL: ttl, LockDelay: delay, NoChecks: true})
		}
		short, long := session(lost, lockDelay), session(lost, 3*lockDelay)
		mine := session(stays, conclave.NoLockDelay).RWLock("x")
		fence := mustRLock(g, mine)
		first, second := short.RWLock("x"), long.RWLock("x")
		if f, h := mustRLock(g, first), mustRLock(g, second); f != fence || h != fence {
			g.T.Errorf("fences %v, %v, %v of readers together", fence, f, h)
		}
		grouptest.Must(g.T, short.Renew(grouptest.Within(g.T, election)))
		renewed := time.Now()
		g.Net.Isolate(lost)
		for _, l := range []*conclave.RWLock{first, second} {
			<-l.Lost()
			wantAt(g.T, "the loss", time.Now(), deadlineOf(renewed))
			grouptest.WantError(g.T, l.RUnlock(g.T.Context()), conclave.ErrLockOwnershipLost)
		}
		pass(ttl/100 + heartbeat) // the group has ended the sessions
		if f, err := mine.Fence(); f != fence || err != nil {
			g.T.Errorf("the reader that stays has fence %v, %v", f, err)
		}
		began := time.Now()
		late := g.Nodes[leader].RWLock("x")
		if f := mustRLock(g, late); f != fence {
			g.T.Errorf("a reader that joins has fence %v, want %v", f, fence)
		}
		wantBetween(g.T, "a reader's grant in the lock-delay of another one", time.Now(), began, began.Add(heartbeat))
		writer := g.Nodes[leader].RWLock("x")
		wrote := writing(g, writer)
		grouptest.Must(g.T, late.RUnlock(g.T.Context()))
		grouptest.Must(g.T, mine.RUnlock(g.T.Context()))
		got := <-wrote
		grouptest.Must(g.T, got.err)
		wantBetween(g.T, "the writer's grant", got.at, renewed.Add(ttl+3*lockDelay), renewed.Add(ttl+3*lockDelay+2*heartbeat))
		if f, err := writer.Fence(); err != nil || f <= fence {
			g.T.Errorf("the writer has fence %v, %v; want more than %v", f, err, fence)
		}
		g.Net.Rejoin(lost)
	})
}

// readNear has each handle read, and returns the last fence.
func readNear(g *grouptest.Group, near []*conclave.RWLock) (fence conclave.Fence) {
	g.T.Helper()
	for _, l := range near {
		fence = mustRLock(g, l)
		grouptest.Must(g.T, l.RUnlock(g.T.Context()))
	}
	return fence
}

// All nodes keep a share near, and read without the group. A writer recalls them at once, but for one
// that is cut by a partition: that reads until its deadline, and the writer waits for the session's end.
func TestRWLock_LingeringRecalled(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		other := g.Others(leader)[0]
		var near []*conclave.RWLock
		for _, n := range g.Nodes {
			near = append(near, n.RWLock("x", conclave.Linger(time.Hour)))
		}
		fence := readNear(g, near)
		info, err := near[leader].Info(g.T.Context())
		if err != nil || info.Shared != 3 || !info.Lingering || !info.Holders[2].Lingering {
			g.T.Errorf("%+v, %v; want three that linger", info, err)
		}
		pass(time.Minute)
		applied := g.Nodes[leader].Status().Applied
		for range 1000 {
			if f := readNear(g, near); f != fence {
				g.T.Errorf("fence %v, want %v", f, fence)
			}
		}
		if now := g.Nodes[leader].Status().Applied; now > applied+5 { // renewals
			g.T.Errorf("%d entries for reads of what is near", now-applied)
		}
		began := time.Now()
		writer := g.Nodes[leader].RWLock("x")
		_, err = writer.Lock(g.T.Context())
		grouptest.Must(g.T, err)
		wantBetween(g.T, "the writer's grant", time.Now(), began, began.Add(heartbeat))
		grouptest.Must(g.T, writer.Unlock(g.T.Context()))

		pass(2 * time.Second) // until something lingers again
		readNear(g, near)
		g.Net.Isolate(other)
		cut := time.Now()
		wrote := writing(g, writer)
		pass(ttl / 4)
		mustRLock(g, near[other]) // it cannot know of the writer
		lost := near[other].Lost()
		<-lost
		last := time.Now()
		wantBetween(g.T, "the loss", last, cut.Add(ttl/2), cut.Add(ttl))
		_, err = near[other].RLock(grouptest.Within(g.T, election))
		grouptest.WantError(g.T, err, conclave.ErrLockOwnershipLost)
		got := <-wrote
		grouptest.Must(g.T, got.err)
		wantBetween(g.T, "the writer's grant", got.at, last, cut.Add(ttl+2*heartbeat))
		grouptest.WantError(g.T, near[other].RUnlock(g.T.Context()), conclave.ErrLockOwnershipLost)
		g.Net.Rejoin(other)
		grouptest.Must(g.T, writer.Unlock(g.T.Context()))
		mustRLock(g, near[other])
	})
}

// While a member runs a build that does not know the shared mode, a call for it has no effect, and the
// exclusive mode works. After the upgrade both do, for what was held before as well.
func TestUpgrade_SharedMode(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		l := g.Nodes[0].RWLock("x")
		_, err := l.RLock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		_, err = l.TryRLock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		s := grouptest.MustSession(g.T, g.Nodes[0], grouptest.Lasting())
		before := s.RWLock("x")
		first, err := before.Lock(g.T.Context())
		grouptest.Must(g.T, err)
		_, err = before.Downgrade(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		for _, i := range []int{1, 2} {
			g.Kill(i)
			g.Seams[i].FeatureLevel = wire.LevelShared
			g.Start(i)
		}
		pass(time.Minute)
		_, err = g.Nodes[1].RWLock("y").RLock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired) // of the member that is left
		g.Kill(0)
		g.Seams[0].FeatureLevel = wire.LevelShared
		g.Start(0)
		pass(time.Minute) // the leader raises the level
		wantLevel(g, 0, wire.LevelShared)
		s = grouptest.MustAttach(g.T, g.Nodes[0], s.ID())
		after := s.RWLock("x")
		second, err := after.Lock(g.T.Context()) // claims the hold
		grouptest.Must(g.T, err)
		third, err := after.Downgrade(g.T.Context())
		if err != nil || second <= first || third <= second {
			g.T.Errorf("fences %v, %v, %v, %v; want them to grow", first, second, third, err)
		}
		if f := mustRLock(g, g.Nodes[1].RWLock("x")); f != third {
			g.T.Errorf("a reader that joins has fence %v, want %v", f, third)
		}
	}, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.FeatureLevel = wire.LevelBounds }))
}

// A session without TTL outlives its process with the shares that it holds. The first shared
// request of the process that attaches it claims one, with the phase's fence, and a writer waits for all.
func TestRWLock_Attached(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		first, second := g.Others(leader)[0], g.Others(leader)[1]
		s := grouptest.MustSession(g.T, g.Nodes[first], grouptest.Lasting())
		l := s.RWLock("x")
		fence := mustRLock(g, l)
		mustRLock(g, l)
		wrote := writing(g, g.Nodes[leader].RWLock("x"))
		g.Kill(first)
		pass(2 * time.Minute)
		s = grouptest.MustAttach(g.T, g.Nodes[second], s.ID())
		l = s.RWLock("x")
		for range 2 { // they would wait behind the writer if they did not claim
			if f := mustRLock(g, l); f != fence {
				g.T.Errorf("a claimed share has fence %v, want %v", f, fence)
			}
		}
		grouptest.Must(g.T, l.RUnlock(g.T.Context()))
		select {
		case got := <-wrote:
			g.T.Errorf("a writer beside a share: %v", got.err)
		default:
		}
		grouptest.Must(g.T, l.RUnlock(g.T.Context()))
		grouptest.Must(g.T, (<-wrote).err)
	})
}

// A downgrade that a partition leaves without an outcome may have taken effect or not. Either release releases
// the hold, and the holder has the lock in one of its modes until then.
func TestRWLock_DowngradePartitioned(t *testing.T) {
	for name, release := range map[string]func(*conclave.RWLock, context.Context) error{
		"Unlock": (*conclave.RWLock).Unlock, "RUnlock": (*conclave.RWLock).RUnlock,
	} {
		t.Run(name, func(t *testing.T) {
			grouptest.InBubble(t, 3, func(g *grouptest.Group) {
				leader := g.Leader()
				holder := g.Others(leader)[0]
				l := g.Nodes[holder].RWLock("x")
				_, err := l.Lock(g.T.Context())
				grouptest.Must(g.T, err)
				wrote := writing(g, g.Nodes[leader].RWLock("x"))
				g.Net.Isolate(holder)
				ctx, cancel := context.WithTimeout(g.T.Context(), election/2)
				defer cancel()
				_, err = l.Downgrade(ctx)
				grouptest.WantError(g.T, err, conclave.ErrUnknown)
				grouptest.WantError(g.T, err, context.DeadlineExceeded)
				if _, err := l.Fence(); err != nil || l.Holds() != 1 {
					g.T.Errorf("%v, %d holds; want the one hold", err, l.Holds())
				}
				released := make(chan error, 1)
				go func() { released <- release(l, g.T.Context()) }()
				pass(election)
				select {
				case err := <-released:
					g.T.Errorf("released in a partition: %v", err)
				case got := <-wrote:
					g.T.Errorf("a writer beside a holder: %v", got.err)
				default:
				}
				g.Net.Rejoin(holder)
				grouptest.Must(g.T, <-released)
				grouptest.Must(g.T, (<-wrote).err)
				if l.Holds() != 0 {
					g.T.Errorf("%d holds are left", l.Holds())
				}
			})
		})
	}
}
