package virtualtime

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// worker is the session of a worker that has a number.
func worker(name string) *conclave.SessionConfig {
	return &conclave.SessionConfig{Name: name, TTL: 10 * time.Second, LockDelay: 20 * time.Second, NoChecks: true}
}

// A worker is killed. No other one has its number before the lock-delay has passed, also while numbers are rare, and a new
// process of the same name has it again.
func TestSlots_WorkerKilled(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		var permits []*conclave.Permit
		for i, n := range g.Nodes {
			s := grouptest.MustSession(g.T, n, worker(fmt.Sprint("worker ", i)))
			permits = append(permits, grouptest.MustAcquire(g.T, s.Semaphore("workers", 3), 1))
			wantSlots(g, permits[i], i)
		}
		killed := time.Now()
		g.Kill(1)
		next, err := g.Nodes[2].Semaphore("workers", 3).Acquire(grouptest.Within(g.T, time.Minute), 1)
		grouptest.Must(g.T, err)
		wantBetween(g.T, "the number of the killed worker was granted", time.Now(), killed.Add(25*time.Second), killed.Add(40*time.Second))
		wantSlots(g, next, 1)
		grouptest.Must(g.T, next.Release(g.T.Context()))
		grouptest.Must(g.T, permits[2].Release(g.T.Context()))

		g.Start(1)
		again := grouptest.MustSession(g.T, g.Nodes[1], worker("worker 2"))
		wantSlots(g, grouptest.MustAcquire(g.T, again.Semaphore("workers", 3), 1), 2)
		wantSlots(g, grouptest.MustAcquire(g.T, g.Nodes[0].Semaphore("workers", 3), 1), 1)
	})
}

func wantSlots(g *grouptest.Group, p *conclave.Permit, want ...int) {
	g.T.Helper()
	if got := p.Slots(); !slices.Equal(got, want) {
		g.T.Errorf("the permits have the numbers %v, want %v", got, want)
	}
}

// A session continues in another process: with the same numbers, in a client as well.
func TestSlots_SessionAttached(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		first := grouptest.MustAcquire(g.T, g.Nodes[2].Semaphore("workers", 9), 2)
		lasting := grouptest.MustSession(g.T, g.Nodes[0], grouptest.Lasting())
		held := grouptest.MustAcquire(g.T, lasting.Semaphore("workers", 9), 3)
		wantSlots(g, held, 2, 3, 4)
		grouptest.Must(g.T, first.Release(g.T.Context()))
		g.Kill(0)
		g.Start(0) // now the group knows that the earlier process has ended
		client := grouptest.Dial(g.T, &conclave.ClientConfig{Dial: g.Net.Dialer(3)}, g.Nodes[1])
		attached := grouptest.MustAttach(g.T, client, lasting.ID())
		claimed := grouptest.MustAcquire(g.T, attached.Semaphore("workers", 9), 3)
		wantSlots(g, claimed, 2, 3, 4)
		wantSlots(g, grouptest.MustAcquire(g.T, client.Semaphore("workers", 9), 3), 0, 1, 5)
		wantSlots(g, grouptest.MustAcquire(g.T, client.Semaphore("many", 1000), 129))
	})
}

// A group is upgraded from a build without numbers. Permits that are held have none, those of a request that waited
// have, and no two have the same.
func TestUpgrade_Slots(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		lasting := grouptest.MustSession(g.T, g.Nodes[0], grouptest.Lasting())
		before := grouptest.MustAcquire(g.T, lasting.Semaphore("workers", 3), 2)
		wantSlots(g, before)
		for _, i := range g.All() {
			g.Kill(i)
			g.Seams[i].FeatureLevel = wire.LevelSlots
			g.Start(i)
		}
		pass(time.Minute) // the leader raises the level
		wantLevel(g, 0, wire.LevelSlots)
		s := g.Nodes[1].Semaphore("workers", 3)
		wantSlots(g, grouptest.MustAcquire(g.T, s, 1), 0)
		attached := grouptest.MustAttach(g.T, g.Nodes[2], lasting.ID())
		claimed := grouptest.MustAcquire(g.T, attached.Semaphore("workers", 3), 2)
		wantSlots(g, claimed)
		waits := grouptest.StartAcquire(g.T, s, 2)
		grouptest.AwaitAcquirers(g.T, s, 1)
		grouptest.Must(g.T, claimed.Release(g.T.Context()))
		wantSlots(g, waits.Granted(g.T), 1, 2)
		for _, h := range grouptest.SemaphoreInfo(g.T, s).Holders {
			if len(h.Slots()) != h.Permits {
				g.T.Errorf("%d permits have the numbers %v", h.Permits, h.Slots())
			}
		}
	}, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.FeatureLevel = wire.LevelBounds }))
}
