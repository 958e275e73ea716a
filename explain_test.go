package conclave_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// mustExplain explains a lock.
func mustExplain(t testing.TB, n grouptest.Access, lock string) conclave.Explanation {
	t.Helper()
	e, err := n.Explain(grouptest.Bounded(t), lock)
	grouptest.Must(t, err)
	return e
}

func TestExplain_HolderAndQueueOnThreeMembers(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		asking, holding, waiting := g.Nodes[0], g.Nodes[1], g.Nodes[2]
		s := grouptest.MustSession(g.T, holding, &conclave.SessionConfig{Name: "invoices", TTL: time.Minute, LockDelay: 7 * time.Second, NoChecks: true})
		held := s.FencedLock("x", conclave.Reentrant(0))
		fence := grouptest.MustLock(g.T, held)
		grouptest.MustLock(g.T, held)
		grouptest.StartLock(g.T, waiting.FencedLock("x"))

		e := mustExplain(g.T, asking, "x")
		for !e.Holder.Alive || len(e.Queue) == 0 || !e.Queue[0].Alive { // gossip may not have seen all at once
			grouptest.Pass(5 * time.Millisecond)
			e = mustExplain(g.T, asking, "x")
		}
		h := e.Holder
		if !e.Held || e.Fence != fence || e.Holds != 2 || e.Lingering || e.Delay != 0 || e.Lock != "x" {
			g.T.Errorf("%+v", e)
		}
		if h.Node != g.ID(1) || h.NodeName != "member-1" || !h.Alive || h.Session != s.ID() || h.SessionName != "invoices" || h.TTL != time.Minute {
			g.T.Errorf("holder %+v", h)
		}
		if h.Renewed < 0 || h.Remaining <= 0 || h.Remaining+h.Renewed != time.Minute {
			g.T.Errorf("renewed %v ago, with %v left of a minute", h.Renewed, h.Remaining)
		}
		if e.Waiters != 1 || len(e.Queue) != 1 {
			g.T.Fatalf("queue %+v", e.Queue)
		}
		if w := e.Queue[0]; w.Node != g.ID(2) || w.NodeName != "member-2" || !w.Alive || w.Session != grouptest.OwnSession(g.T, waiting) || w.TTL != time.Minute {
			g.T.Errorf("waiter %+v", w)
		}

		g.Kill(1)
		for e.Holder.Alive {
			grouptest.Pass(5 * time.Millisecond)
			e = mustExplain(g.T, asking, "x")
		}
		if !e.Held || e.Holder.Session != s.ID() {
			g.T.Errorf("a holder of which the process died: %+v", e)
		}
		grouptest.Must(g.T, asking.CloseSession(grouptest.Bounded(g.T), s.ID()))
		if e = mustExplain(g.T, asking, "x"); e.Held || e.Holder != (conclave.LockOwner{}) || e.Delay <= 0 || e.Waiters != 1 || len(e.Queue) != 1 {
			g.T.Errorf("in its lock-delay: %+v", e)
		}
	}, grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) { c.SessionTTL = time.Minute }))
}

// The failure detector does not watch a client, which must not look dead.
func TestExplain_ClientHoldsAndWaits(t *testing.T) {
	n := grouptest.Alone(t)
	holding, waiting := grouptest.Dial(t, &conclave.ClientConfig{}, n), grouptest.Dial(t, &conclave.ClientConfig{}, n)
	grouptest.MustLock(t, holding.FencedLock("x"))
	grouptest.StartLock(t, waiting.FencedLock("x"))
	e := mustExplain(t, n, "x")
	if h := e.Holder; !h.Client || h.Alive || h.Node != holding.ID() || h.Renewed < 0 {
		t.Errorf("holder %+v", h)
	}
	if w := e.Queue[0]; !w.Client || w.Node != waiting.ID() {
		t.Errorf("waiter %+v", w)
	}
	if h := mustExplain(t, n, "y").Holder; h.Client {
		t.Errorf("a free lock has holder %+v", h)
	}
}

func TestExplain_FreeLockAndErrors(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		if e := mustExplain(t, n, "x"); e.Lock != "x" || e.Held || e.Waiters != 0 || e.Queue != nil {
			t.Errorf("%+v", e)
		}
		_, err := n.Explain(t.Context(), "")
		grouptest.WantError(t, err, conclave.ErrInvalid)
		_, err = n.Explain(t.Context(), strings.Repeat("n", 513))
		grouptest.WantError(t, err, conclave.ErrTooLarge)
		_, err = n.Explain(grouptest.Expired(), "x")
		grouptest.WantError(t, err, context.Canceled)
		grouptest.Must(t, n.Close(t.Context()))
		_, err = n.Explain(t.Context(), "x")
		grouptest.WantError(t, err, conclave.ErrClosed)
	})
}

func TestExplain_NoTTL(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := grouptest.MustSession(t, n, grouptest.Lasting())
		grouptest.MustLock(t, s.FencedLock("x"))
		if h := mustExplain(t, n, "x").Holder; h.TTL != conclave.NoTTL || h.Remaining != 0 || h.Renewed < 0 {
			t.Errorf("%+v", h)
		}
	})
}

// A queue is reported up to its first 1,000 waiters.
func TestExplain_LongQueue(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		held := n.FencedLock("x")
		grouptest.MustLock(t, held)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const waiters = 1001
		for range waiters {
			go n.FencedLock("x").Lock(ctx)
		}
		grouptest.AwaitWaiters(t, held, waiters)
		if e := mustExplain(t, n, "x"); e.Waiters != waiters || len(e.Queue) != 1000 {
			t.Errorf("%d of %d waiters, want 1000 of %d", len(e.Queue), e.Waiters, waiters)
		}
	})
}

// cycleOf names a cycle by the locks that are waited for, by the names of the sessions.
func cycleOf(c conclave.WaitCycle) (names []string) {
	for i, w := range c {
		if w.Holder.Session != c[(i+1)%len(c)].Waiter.Session {
			return []string{"broken"}
		}
		names = append(names, w.Waiter.SessionName+" waits for "+w.Lock)
	}
	slices.Sort(names)
	return names
}

func TestWaitCycles(t *testing.T) {
	g := grouptest.Start(t, 3)
	ctx := grouptest.Bounded(t)
	var sessions []*conclave.Session
	for i, name := range []string{"a", "b", "c"} {
		s := grouptest.MustSession(t, g.Nodes[i], &conclave.SessionConfig{Name: name, TTL: time.Minute, LockDelay: conclave.NoLockDelay, NoChecks: true})
		grouptest.MustLock(t, s.FencedLock(name+"'s"))
		sessions = append(sessions, s)
	}
	want := func(cycles ...[]string) {
		t.Helper()
		got, err := g.Nodes[2].WaitCycles(ctx)
		grouptest.Must(t, err)
		if len(got) != len(cycles) {
			t.Fatalf("%v, want %v", got, cycles)
		}
		for i := range got {
			if names := cycleOf(got[i]); !slices.Equal(names, cycles[i]) {
				t.Errorf("%v, want %v", names, cycles[i])
			}
		}
	}
	grouptest.StartLock(t, sessions[0].FencedLock("b's"))
	grouptest.StartLock(t, sessions[1].FencedLock("c's"))
	want()
	if e := mustExplain(t, g.Nodes[0], "a's"); e.Cycle != nil {
		t.Errorf("%v", e.Cycle)
	}
	last := grouptest.StartLock(t, sessions[2].FencedLock("a's"))
	want([]string{"a waits for b's", "b waits for c's", "c waits for a's"})

	e := mustExplain(t, g.Nodes[0], "b's")
	if len(e.Cycle) != 3 || e.Cycle[0].Lock != "c's" || e.Cycle[0].Waiter.SessionName != "b" || e.Cycle[2].Holder.Session != e.Holder.Session {
		t.Errorf("%v", e.Cycle)
	}
	text := fmt.Sprintf("session %v of member member-1 waits for lock %q of session %v of member member-2; ", sessions[1].ID(), "c's", sessions[2].ID())
	if got := e.Cycle.String(); !strings.HasPrefix(got, text) {
		t.Errorf("%q, want the prefix %q", got, text)
	}
	last.Cancel()
	<-last.Err
	grouptest.AwaitWaiters(t, sessions[0].FencedLock("a's"), 0)
	want()
}

// Elections are part of a cycle. Two handles of one session that wait for each other are not.
func TestWaitCycles_ElectionAndOwnSession(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		a, b := grouptest.MustSession(t, n, grouptest.Lasting()), grouptest.MustSession(t, n, grouptest.Lasting())
		grouptest.MustLock(t, a.FencedLock("x"))
		grouptest.StartLock(t, a.FencedLock("x"))
		grouptest.MustCampaign(t, b.Election("e"), "b")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.Election("e").Campaign(ctx, nil)
		if cycles, err := n.WaitCycles(t.Context()); len(cycles) != 0 || err != nil {
			t.Fatal(cycles, err)
		}
		go b.FencedLock("x").Lock(ctx)
		grouptest.AwaitWaiters(t, a.FencedLock("x"), 2)
		var cycle conclave.WaitCycle
		for ; cycle == nil; grouptest.Pass(time.Millisecond) { // until the candidate has queued
			cycle = mustExplain(t, n, "x").Cycle
		}
		if len(cycle) != 2 || !cycle[0].Election || cycle[0].Lock != "e" || cycle[1].Election || cycle[1].Lock != "x" {
			t.Errorf("%v", cycle)
		}
		if got := cycle.String(); !strings.Contains(got, `waits for election "e" of session`) {
			t.Error(got)
		}
		grouptest.Must(t, n.Close(t.Context()))
		_, err := n.WaitCycles(t.Context())
		grouptest.WantError(t, err, conclave.ErrClosed)
	})
}

// awaitLabels blocks until labels and times are recorded: the group has raised its feature
// level.
func awaitLabels(t testing.TB, n grouptest.Access) {
	t.Helper()
	l := n.FencedLock("probe")
	for recorded := false; !recorded; {
		grouptest.MustLock(t, l)
		recorded = mustExplain(t, n, "probe").Holder.Since >= 0
		grouptest.MustUnlock(t, l)
	}
}

func TestExplain_LabelsAndTimes(t *testing.T) {
	g := grouptest.Start(t, 3)
	awaitLabels(t, g.Nodes[1])
	held := g.Nodes[1].FencedLock("x", conclave.WithLabel("invoice run 2026-11"), conclave.Reentrant(0))
	grouptest.MustLock(t, held)
	grouptest.Busy(t, g.Nodes[1], 3)
	next := g.Nodes[2].FencedLock("x", conclave.WithLabel("第二"))
	waiting := grouptest.StartLock(t, next)
	go g.Nodes[2].FencedLock("x").Lock(t.Context())
	grouptest.AwaitWaiters(t, held, 2)

	var e conclave.Explanation
	for e = mustExplain(t, g.Nodes[0], "x"); e.Queue[0].Since <= 0; e = mustExplain(t, g.Nodes[0], "x") {
		grouptest.Pass(time.Millisecond)
	}
	if e.Holder.Label != "invoice run 2026-11" || e.Queue[0].Label != "第二" || e.Queue[1].Label != "" {
		t.Errorf("labels of %v and %v", e.Holder, e.Queue)
	}
	if e.Queue[0].Since >= e.Holder.Since || e.Queue[1].Since > e.Queue[0].Since || e.Queue[1].Since < 0 {
		t.Errorf("held for %v, waited for during %v and %v", e.Holder.Since, e.Queue[0].Since, e.Queue[1].Since)
	}
	if got := e.Holder.String(); !strings.HasPrefix(got, `"invoice run 2026-11" under session `) {
		t.Error(got)
	}
	info, err := next.Info(t.Context())
	if err != nil || info.Label != "invoice run 2026-11" || info.Since < e.Holder.Since {
		t.Errorf("%+v, %v", info, err)
	}
	for l := range g.Nodes[0].Locks(t.Context(), "x") {
		if l.Label != info.Label || l.Since < info.Since {
			t.Errorf("listed as %+v", l)
		}
	}

	before := e.Holder.Since
	grouptest.MustLock(t, held) // the hold is the one that began then
	grouptest.MustUnlock(t, held)
	if again := mustExplain(t, g.Nodes[0], "x").Holder.Since; again < before {
		t.Errorf("held for %v, and then for %v", before, again)
	}
	grouptest.MustUnlock(t, held)
	grouptest.Must(t, <-waiting.Err)
	if e = mustExplain(t, g.Nodes[0], "x"); e.Holder.Label != "第二" || e.Waiters != 1 || e.Queue[0].Label != "" {
		t.Errorf("after the release: %+v", e)
	}
}

func TestWithLabel_Limits(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		awaitLabels(t, n)
		longest := n.FencedLock("x", conclave.WithLabel(strings.Repeat("n", 128)))
		grouptest.MustLock(t, longest)
		grouptest.MustUnlock(t, longest)
		for label, want := range map[string]error{
			strings.Repeat("n", 129): conclave.ErrTooLarge,
			"not \xff UTF-8":         conclave.ErrInvalid,
			"a\x00b":                 conclave.ErrInvalid,
		} {
			l := n.FencedLock("x", conclave.WithLabel(label))
			_, err := l.Lock(t.Context())
			grouptest.WantError(t, err, want)
			_, err = l.TryLock(grouptest.Expired())
			grouptest.WantError(t, err, want)
		}
		if e := mustExplain(t, n, "x"); e.Held || e.Waiters != 0 {
			t.Errorf("refused labels have an effect: %+v", e)
		}
	})
}

// A lock that lingers belongs to the node, whatever the labels of the handles that share it.
func TestWithLabel_Lingering(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		awaitLabels(t, n)
		l := n.FencedLock("x", conclave.Linger(time.Minute), conclave.WithLabel("first"))
		grouptest.MustLock(t, l)
		grouptest.MustUnlock(t, l)
		if e := mustExplain(t, n, "x"); !e.Held || !e.Lingering || e.Holder.Label != "" || e.Holder.Since < 0 {
			t.Errorf("%+v", e)
		}
	})
}
