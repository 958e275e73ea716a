package virtualtime

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

func create(g *grouptest.Group, n *conclave.Node, cfg conclave.SessionConfig) conclave.SessionID {
	id, err := n.CreateSession(grouptest.Within(g.T, time.Minute), &cfg)
	grouptest.Must(g.T, err)
	return id
}

func holderOf(g *grouptest.Group, n *conclave.Node, key string) conclave.SessionID {
	return grouptest.MustGet(g.T, n.KV(), key).Session
}

// A standalone session outlives the process that created it, lives by the renewals of any member,
// and ends, with a lock-delay, no earlier than its TTL after the last one.
func TestStandalone_CreatorKilled(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		id := create(g, g.Nodes[0], conclave.SessionConfig{TTL: 10 * time.Second, LockDelay: 5 * time.Second, NoChecks: true})
		_, err := g.Nodes[1].KV().Acquire(g.T.Context(), "k", nil, id)
		grouptest.Must(g.T, err)
		g.Kill(0)
		for range 10 {
			pass(8 * time.Second)
			grouptest.Must(g.T, g.Nodes[1].RenewSession(grouptest.Within(g.T, time.Minute), id))
			if got := holderOf(g, g.Nodes[2], "k"); got != id {
				g.T.Fatalf("the key is held by %v", got)
			}
		}
		pass(9 * time.Second)
		if got := holderOf(g, g.Nodes[2], "k"); got != id {
			g.T.Error("released before the TTL")
		}
		pass(3 * time.Second)
		grouptest.WantError(g.T, g.Nodes[1].RenewSession(g.T.Context(), id), conclave.ErrSessionNotFound)
		next := create(g, g.Nodes[1], conclave.SessionConfig{TTL: time.Hour})
		_, err = g.Nodes[2].KV().Acquire(g.T.Context(), "k", nil, next)
		grouptest.WantError(g.T, err, conclave.ErrLockDelay)
		pass(5 * time.Second)
		_, err = g.Nodes[2].KV().Acquire(g.T.Context(), "k", nil, next)
		grouptest.Must(g.T, err)
	})
}

// The default check ends it with its member; a restart of the process, and Close, do not end one
// that depends on no check.
func TestStandalone_Checks(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		checked := create(g, g.Nodes[0], conclave.SessionConfig{TTL: time.Hour})
		free := create(g, g.Nodes[0], conclave.SessionConfig{TTL: time.Hour, NoChecks: true})
		lasting := create(g, g.Nodes[0], conclave.SessionConfig{TTL: conclave.NoTTL, NoChecks: true})
		g.Close(0)
		pass(time.Minute)
		_, err := g.Nodes[1].SessionInfo(g.T.Context(), checked)
		grouptest.WantError(g.T, err, conclave.ErrSessionNotFound)
		g.Start(0)
		for _, id := range []conclave.SessionID{free, lasting} {
			info, err := g.Nodes[0].SessionInfo(g.T.Context(), id)
			if grouptest.Must(g.T, err); info.Node != g.Nodes[0].Status().ID || !info.Standalone {
				g.T.Errorf("%+v", info)
			}
			grouptest.Must(g.T, g.Nodes[0].RenewSession(g.T.Context(), id))
		}
	})
}

// Without a quorum nothing ends; the next leader gives each session a full TTL.
func TestStandalone_NoQuorum(t *testing.T) {
	skipIfShort(t)
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		id := create(g, g.Nodes[0], conclave.SessionConfig{TTL: 10 * time.Second, NoChecks: true})
		pass(7 * time.Second)
		g.Kill(1, 2)
		pass(time.Hour)
		g.Start(1, 2)
		info, err := g.Nodes[0].SessionInfo(grouptest.Within(g.T, time.Minute), id)
		if grouptest.Must(g.T, err); info.Remaining < 8*time.Second {
			g.T.Errorf("%v remain", info.Remaining)
		}
	})
}

// The group refuses such sessions while a member runs a build that does not know them, and
// CreateSession itself raises the level once every member does.
func TestUpgrade_Standalone(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		wantRefused := func(n *conclave.Node) {
			g.T.Helper()
			_, err := n.CreateSession(g.T.Context(), nil)
			grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
			grouptest.WantError(g.T, n.RenewSession(g.T.Context(), conclave.SessionID{1}), conclave.ErrSessionNotFound)
		}
		wantRefused(g.Nodes[0])
		for _, i := range g.All() {
			g.Kill(i)
			g.Seams[i].FeatureLevel = wire.LevelStandalone
			g.Start(i)
			if i < 2 {
				wantRefused(g.Nodes[i])
			}
		}
		id := create(g, g.Nodes[1], conclave.SessionConfig{NoChecks: true})
		wantLevel(g, 1, wire.LevelStandalone)
		grouptest.Must(g.T, g.Nodes[2].RenewSession(g.T.Context(), id))
	}, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.FeatureLevel = wire.LevelClient }))
}
