package virtualtime

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// While a member runs a build that does not know the option, a call that would wait has no effect. After the upgrade a cycle is
// refused, also one through a hold from before.
func TestUpgrade_RefuseDeadlock(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		l := g.Nodes[0].RWLock("free", conclave.RefuseDeadlock())
		_, err := l.Lock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		_, err = l.RLock(g.T.Context())
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		_, err = l.TryLock(g.T.Context())
		grouptest.Must(g.T, err)
		lasting := grouptest.MustSession(g.T, g.Nodes[0], grouptest.Lasting())
		grouptest.MustLock(g.T, lasting.FencedLock("a"))
		for _, i := range g.All() {
			g.Kill(i)
			g.Seams[i].FeatureLevel = wire.LevelDeadlock
			g.Start(i)
		}
		pass(time.Minute) // the leader raises the level
		wantLevel(g, 0, wire.LevelDeadlock)
		a := grouptest.MustAttach(g.T, g.Nodes[1], lasting.ID())
		b := grouptest.MustSession(g.T, g.Nodes[2], grouptest.Lasting())
		refuseAcross(g, a, b)
	}, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.FeatureLevel = wire.LevelBounds }))
}

// refuseAcross has two sessions, of which the first one holds the lock a, lock across each other. The second one is refused.
func refuseAcross(g *grouptest.Group, a, b *conclave.Session) {
	g.T.Helper()
	held := b.FencedLock("b")
	grouptest.MustLock(g.T, held)
	waits := writing(g, a.RWLock("b", conclave.RefuseDeadlock()))
	grouptest.AwaitWaiters(g.T, held, 1)
	_, err := b.RWLock("a", conclave.RefuseDeadlock()).RLock(g.T.Context())
	grouptest.WantError(g.T, err, conclave.ErrDeadlock)
	grouptest.MustUnlock(g.T, held)
	grouptest.Must(g.T, (<-waits).err)
}

// A request whose leader is lost before its outcome comes is sent again, and is refused once: the group has kept
// the outcome, or the next leader decides the same from what its log has.
func TestRefuseDeadlock_LeaderLost(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		first, second := g.Others(leader)[0], g.Others(leader)[1]
		long := &conclave.SessionConfig{TTL: time.Hour}
		a, b := grouptest.MustSession(g.T, g.Nodes[first], long), grouptest.MustSession(g.T, g.Nodes[second], long)
		grouptest.MustLock(g.T, a.FencedLock("a"))
		held := b.FencedLock("b")
		grouptest.MustLock(g.T, held)
		waits := writing(g, a.RWLock("b", conclave.RefuseDeadlock()))
		grouptest.AwaitWaiters(g.T, held, 1)
		g.Net.Isolate(leader)
		refused := writing(g, b.RWLock("a", conclave.RefuseDeadlock()))
		pass(time.Minute)
		grouptest.WantError(g.T, (<-refused).err, conclave.ErrDeadlock)
		g.Net.Rejoin(leader)
		grouptest.MustUnlock(g.T, held)
		grouptest.Must(g.T, (<-waits).err)
		info, err := g.Nodes[leader].FencedLock("a").Info(grouptest.Within(g.T, time.Minute))
		if err != nil || info.Session != a.ID() || info.Waiters != 0 {
			g.T.Errorf("%+v, %v", info, err)
		}
	})
}
