package conclave_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// happened returns the latest event of a kind, once the node has noticed one.
func happened(t testing.TB, n *conclave.Node, kind conclave.HistoryKind) conclave.HistoryEvent {
	t.Helper()
	for end := grouptest.Bounded(t); ; {
		all := n.History()
		for _, e := range slices.Backward(all) {
			if e.Kind == kind {
				return e
			}
		}
		if end.Err() != nil {
			t.Fatalf("no event %v in %+v", kind, all)
		}
		grouptest.Pass(5 * time.Millisecond)
		grouptest.MustUnlock(t, mustLocked(t, n)) // an entry later
	}
}

func mustLocked(t testing.TB, n *conclave.Node) *conclave.FencedLock {
	l := n.FencedLock("progress")
	grouptest.MustLock(t, l)
	return l
}

// Every member sees each session that did not end gracefully, with what it held, and the
// losses of its own.
func TestHistory_Sessions(t *testing.T) {
	g := grouptest.Start(t, 3)
	a, b := g.Nodes[0], g.Nodes[1]
	cfg := conclave.SessionConfig{Name: "worker", LockDelay: conclave.NoLockDelay}
	graceful := grouptest.MustSession(t, a, &cfg)
	grouptest.Must(t, graceful.Close(t.Context()))

	forced := grouptest.MustSession(t, a, &cfg)
	fence := grouptest.MustLock(t, forced.FencedLock("x"))
	grouptest.MustAcquire(t, forced.Semaphore("s", 3), 2)
	grouptest.MustCampaign(t, forced.Election("e"), "")
	grouptest.MustAcquireKey(t, a.KV(), "k", "", forced)
	grouptest.Must(t, b.CloseSession(t.Context(), forced.ID()))

	check := grouptest.MustCheck(t, a, "disk", 0)
	cfg.Checks = []string{"disk"}
	checked := grouptest.MustSession(t, a, &cfg)
	grouptest.Must(t, check.Fail(t.Context()))
	for _, n := range []*conclave.Node{a, b} {
		e := happened(t, n, conclave.HistorySessionForced)
		if e.Session != forced.ID() || e.Member != a.Status().ID || e.Name != "worker" || e.Held != 4 || e.Count != 1 {
			t.Errorf("forced: %+v", e)
		}
		if e := happened(t, n, conclave.HistorySessionCheck); e.Session != checked.ID() || e.Held != 0 {
			t.Errorf("by a check: %+v", e)
		}
		if slices.ContainsFunc(n.History(), func(e conclave.HistoryEvent) bool { return e.Session == graceful.ID() }) {
			t.Errorf("a graceful close is in %+v", n.History())
		}
	}
	if e := happened(t, a, conclave.HistoryHoldLost); e.Count != 3 || e.Member != a.Status().ID {
		t.Errorf("lost: %+v; the first fence is %v", e, fence)
	}
	if slices.ContainsFunc(b.History(), func(e conclave.HistoryEvent) bool { return e.Kind == conclave.HistoryHoldLost }) {
		t.Error("another member has lost what it did not hold")
	}
}

// A history begins with the leader, and has what happens to the members.
func TestHistory_Members(t *testing.T) {
	var redundant [3]chan struct{}
	leaders, former := make(chan conclave.Member, 1024), make(chan conclave.Member, 3)
	g := grouptest.Start(t, 3, grouptest.LongElections, grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
		seen := make(chan struct{}, 1)
		redundant[i] = seen
		c.Events = &conclave.Events{
			RedundancyChanged: func(voters int) {
				if voters == 1 && len(seen) == 0 {
					seen <- struct{}{}
				}
			},
			LeaderChanged: func(leader conclave.Member, _ uint64) { leaders <- leader },
			MemberRemoved: func(member conclave.Member) { former <- member },
		}
	}))
	leader := g.Leader()
	next, third := (leader+1)%3, (leader+2)%3
	n := g.Nodes[next]
	<-redundant[next] // gossip may not have seen all at once, and what is not noted is not lost
	if first := n.History()[0]; first.Kind != conclave.HistoryLeader || first.Seq != 1 || first.Member != g.ID(leader) || first.Term == 0 {
		t.Errorf("the history begins with %+v", first)
	}
	grouptest.MustSession(t, g.Nodes[third], grouptest.Lasting())
	g.MustTransfer(n, next)
	for e := happened(t, n, conclave.HistoryLeader); e.Member != g.ID(next); e = happened(t, n, conclave.HistoryLeader) {
		g.AwaitApplied(next)
	}
	name, addr := g.Nodes[next].Status().Name, g.Nodes[next].Addr()
	for m := <-leaders; m.ID != g.ID(next) || m.Name != name || m.Addr != addr; m = <-leaders { // the buffer has the events since the start
	}
	removed, removedName := g.ID(third), g.Nodes[third].Status().Name
	grouptest.Must(t, n.RemoveMember(t.Context(), removed))
	if e := happened(t, n, conclave.HistoryMemberRemoved); e.Member != removed || e.MemberName != removedName {
		t.Errorf("removed: %+v", e)
	}
	if m := <-former; m.ID != removed || m.Name != removedName || m.Addr == "" {
		t.Errorf("the event of the removal describes %+v", m)
	}
	if e := happened(t, n, conclave.HistorySessionRemoved); e.Member != removed {
		t.Errorf("the session of a removed member: %+v", e)
	}
	for ctx := grouptest.Bounded(t); happened(t, n, conclave.HistoryRedundancy).Voters > 0; grouptest.Pass(time.Millisecond) { // it is noted in a tick
		grouptest.Must(t, ctx.Err())
	}
	grouptest.Must(t, n.Close(t.Context()))
	if len(n.History()) == 0 {
		t.Error("a node that has stopped has no history")
	}
}

// Each member notices that another one is dead, and that it is alive again.
func TestHistory_Deaths(t *testing.T) {
	var redundant [3]chan struct{} // closed once all three are seen alive
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		leader := g.Leader()
		victim := (leader + 1) % 3
		n := g.Nodes[leader]
		<-redundant[leader]
		id, name := g.ID(victim), g.Nodes[victim].Status().Name
		g.Kill(victim)
		if e := happened(g.T, n, conclave.HistoryMemberDead); e.Member != id || e.MemberName != name {
			g.T.Errorf("dead: %+v", e)
		}
		g.Start(victim)
		if e := happened(g.T, n, conclave.HistoryMemberAlive); e.Member != id || e.MemberName != name {
			g.T.Errorf("alive: %+v", e)
		}
	}, grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
		seen, once := make(chan struct{}), sync.Once{}
		redundant[i] = seen
		c.Events = &conclave.Events{RedundancyChanged: func(voters int) {
			if voters == 1 {
				once.Do(func() { close(seen) })
			}
		}}
	}))
}

// A restart of a process, without a graceful shutdown, ends its sessions. The history of the
// new one begins with its Open, not with the entries of its log.
func TestHistory_Restart(t *testing.T) {
	g := grouptest.Start(t, 3)
	i := (g.Leader() + 1) % 3
	s := grouptest.MustSession(t, g.Nodes[i], &conclave.SessionConfig{Name: "worker", TTL: time.Hour, NoChecks: true})
	grouptest.MustLock(t, s.FencedLock("x"))
	forced := grouptest.MustSession(t, g.Nodes[i], nil)
	grouptest.Must(t, g.Nodes[i].CloseSession(t.Context(), forced.ID()))
	g.Kill(i)
	g.Start(i)
	if e := happened(t, g.Nodes[g.Others(i)[0]], conclave.HistorySessionSuperseded); e.Member != g.ID(i) || e.Held != 1 {
		t.Errorf("superseded: %+v", e)
	}
	for _, e := range g.Nodes[i].History() {
		if e.Kind == conclave.HistorySessionForced {
			t.Errorf("the new process lists what came before it: %+v", e)
		}
	}
}

// A member that installs a snapshot has missed entries, and says so.
func TestHistory_Snapshot(t *testing.T) {
	g := grouptest.Start(t, 3, grouptest.ShortLog, grouptest.MemoryNetwork)
	lagging := (g.Leader() + 1) % 3
	g.Disconnect(lagging)
	grouptest.Busy(t, g.Nodes[g.LeaderWithout(lagging)], 100)
	g.Net.Rejoin(lagging)
	happened(t, g.Nodes[lagging], conclave.HistorySnapshot)
}

// A storm of sessions is one event, and evicts no leader from the history.
func TestHistory_Bounded(t *testing.T) {
	n := grouptest.Alone(t)
	for i := range 300 {
		s := grouptest.MustSession(t, n, grouptest.Lasting())
		grouptest.MustLock(t, s.FencedLock(fmt.Sprint(i)))
		grouptest.Must(t, n.CloseSession(t.Context(), s.ID()))
	}
	all := n.History()
	sessions := 0
	for _, e := range all {
		if e.Kind == conclave.HistorySessionForced {
			sessions += e.Count
			if e.Held != e.Count {
				t.Errorf("%+v", e)
			}
		}
	}
	if sessions != 300 || len(all) > 60 || all[0].Kind != conclave.HistoryLeader {
		t.Errorf("%d sessions in %d events, the first of which is %+v", sessions, len(all), all[0])
	}
}
