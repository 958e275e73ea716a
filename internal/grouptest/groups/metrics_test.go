package groups

import (
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	gt "github.com/conclave-go/conclave/internal/grouptest"
)

// measured returns what a node's metrics have of a further group, when that is as ok asks for.
func measured(t *testing.T, n *conclave.Node, name string, ok func(conclave.GroupMetrics) bool) conclave.GroupMetrics {
	t.Helper()
	ctx := gt.Bounded(t)
	for {
		var last conclave.GroupMetrics
		for _, m := range n.Metrics().Groups {
			if m.Name == name {
				last = m
			}
		}
		if last.Name == name && ok(last) {
			return last
		}
		if ctx.Err() != nil {
			t.Fatalf("%+v", last)
		}
		gt.Pass(5 * time.Millisecond)
	}
}

// callsOf returns how many calls of a kind have returned.
func callsOf(calls []conclave.CallMetrics, kind conclave.CallKind) (n uint64) {
	for _, c := range calls {
		if c.Kind == kind {
			n += c.Seconds.Count()
		}
	}
	return n
}

// What is done in a further group is counted there and in no other group, and what it has is known on all members.
func TestMetrics_OfFurtherGroups(t *testing.T) {
	t.Parallel()
	g := start(t, 3, gt.LongElections)
	ctx := gt.Bounded(t)
	for _, name := range []string{"b", "a"} {
		create(t, g.Nodes[0], name)
	}
	g.MustTransfer(g.Nodes[1], 1) // else a may be moved, to spread the leaders
	transfer(t, g, "a", 0)
	before := g.Nodes[0].Metrics()
	l := g.Nodes[0].WithGroup("a").FencedLock("x")
	gt.MustLock(t, l)
	gt.MustPut(t, g.Nodes[0].WithGroup("a").KV(), "k", "v")
	m := measured(t, g.Nodes[0], "a", func(m conclave.GroupMetrics) bool { return m.Locks == 1 && m.Keys == 1 && m.Sessions == 1 })
	if m.Number != 2 || m.Leader != g.ID(0) || !m.Leads || m.Term == 0 || m.Commit == 0 || m.Applied == 0 || m.Voters != 3 || m.LeaderChanges == 0 {
		t.Errorf("%+v", m)
	}
	if m.Held != 1 || m.Own != 1 || m.GroupTime == 0 || m.EntryCommands.Count() == 0 || m.CommitSeconds.Count() == 0 || m.WriteSeconds.Count() == 0 {
		t.Errorf("%+v", m)
	}
	if len(m.Calls) != 2 || callsOf(m.Calls, conclave.CallLock) != 1 || callsOf(m.Calls, conclave.CallWrite) != 1 {
		t.Errorf("calls %+v", m.Calls)
	}
	after := g.Nodes[0].Metrics()
	if callsOf(after.Calls, conclave.CallLock) != callsOf(before.Calls, conclave.CallLock) || after.Held != 0 || after.Locks != 0 || after.Keys != 0 {
		t.Errorf("the default group's: %+v", after)
	}
	if list := after.Groups; len(list) != 2 || list[0].Name != "a" || list[1].Name != "b" || list[1].Locks != 0 || len(list[1].Calls) != 0 {
		t.Errorf("%+v", list)
	}
	other := measured(t, g.Nodes[1], "a", func(m conclave.GroupMetrics) bool { return m.Locks == 1 && m.Keys == 1 && m.Leader == g.ID(0) })
	if other.Leads || other.Held != 0 || len(other.Calls) != 0 {
		t.Errorf("on another member: %+v", other)
	}
	held, err := l.Info(ctx)
	gt.Must(t, err)
	lost := l.Lost()
	gt.Must(t, g.Nodes[1].WithGroup("a").CloseSession(ctx, held.Session))
	<-lost
	measured(t, g.Nodes[0], "a", func(m conclave.GroupMetrics) bool { return m.HoldsLost == 1 && m.Locks == 0 })
}

// A group that is deleted is in the metrics no more.
func TestMetrics_DeletedGroup(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	ctx := gt.Bounded(t)
	for i := range 3 {
		create(t, g.Nodes[0], "a")
		if list := g.Nodes[0].Metrics().Groups; len(list) != 1 || list[0].Number != uint32(i+1) {
			t.Errorf("%+v", list)
		}
		gt.Must(t, g.Nodes[0].DeleteGroup(ctx, "a"))
		if list := g.Nodes[0].Metrics().Groups; len(list) != 0 {
			t.Errorf("%+v", list)
		}
	}
}

// Metrics of a node that has stopped are the last ones, and those of a group are with them.
func TestMetrics_FurtherGroupsOfStoppedNode(t *testing.T) {
	t.Parallel()
	g := start(t, 1)
	tenant := create(t, g.Nodes[0], "a")
	n := g.Nodes[0]
	gt.MustPut(t, tenant.KV(), "k", "v")
	g.Close(0)
	_, err := tenant.FencedLock("x").Lock(t.Context())
	gt.WantError(t, err, conclave.ErrClosed)
	list := n.Metrics().Groups
	if len(list) != 1 || callsOf(list[0].Calls, conclave.CallWrite) != 1 || callsOf(list[0].Calls, conclave.CallLock) != 1 {
		t.Errorf("%+v", list)
	}
}

// events returns what a node's history has of a further group, oldest first, when that is as ok asks for.
func events(t *testing.T, n *conclave.Node, group string, ok func([]conclave.HistoryEvent) bool) (list []conclave.HistoryEvent) {
	t.Helper()
	ctx := gt.Bounded(t)
	for {
		list = slices.DeleteFunc(n.History(), func(e conclave.HistoryEvent) bool { return e.Group != group })
		if ok(list) {
			return list
		}
		if ctx.Err() != nil {
			t.Fatalf("%+v", list)
		}
		gt.Pass(5 * time.Millisecond)
	}
}

// What happens in a further group is in the history with its name: its leaders, ends of sessions, and losses of this node. It is not there again after
// a restart, as the log is read again.
func TestHistory_OfFurtherGroup(t *testing.T) {
	t.Parallel()
	g := start(t, 3, gt.LongElections)
	ctx := gt.Bounded(t)
	tenant := create(t, g.Nodes[0], "tenant")
	g.MustTransfer(g.Nodes[0], 0) // else the tenant is moved at the end, to spread the leaders
	transfer(t, g, "tenant", 0)
	transfer(t, g, "tenant", 1)
	of := func(kind conclave.HistoryKind, member int) func([]conclave.HistoryEvent) bool {
		return func(list []conclave.HistoryEvent) bool {
			return slices.ContainsFunc(list, func(e conclave.HistoryEvent) bool { return e.Kind == kind && e.Member == g.ID(member) })
		}
	}
	events(t, g.Nodes[0], "tenant", of(conclave.HistoryLeader, 1))
	l := tenant.FencedLock("x")
	fence := gt.MustLock(t, l)
	held, err := l.Info(ctx)
	gt.Must(t, err)
	gt.Must(t, g.Nodes[2].WithGroup("tenant").CloseSession(ctx, held.Session))
	list := events(t, g.Nodes[0], "tenant", of(conclave.HistoryHoldLost, 0))
	for _, e := range list {
		if e.Kind == conclave.HistoryHoldLost && (e.Name != "x" || e.Fence != fence) {
			t.Errorf("%+v", e)
		}
	}
	events(t, g.Nodes[1], "tenant", of(conclave.HistorySessionForced, 0))
	for _, e := range g.Nodes[1].History() {
		if e.Group == "" && e.Kind >= conclave.HistorySessionExpired {
			t.Errorf("in the default group: %+v", e)
		}
	}
	g.Kill(1)
	g.Start(1)
	gt.MustPut(t, g.Nodes[1].WithGroup("tenant").KV(), "k", "v")
	for _, e := range events(t, g.Nodes[1], "tenant", func(list []conclave.HistoryEvent) bool { return len(list) > 0 }) {
		if e.Kind >= conclave.HistorySessionExpired {
			t.Errorf("after a restart: %+v", e)
		}
	}
}
