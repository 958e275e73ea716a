package virtualtime

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// tenants creates further groups.
func (g *membership) tenants(by int, names ...string) {
	g.T.Helper()
	for _, name := range names {
		_, err := g.Nodes[by].CreateGroup(grouptest.Within(g.T, time.Minute), name, conclave.GroupConfig{})
		grouptest.Must(g.T, err)
	}
}

// awaitFollowed waits until each further group has the voters of the default one, and a leader, on each running member.
func (g *membership) awaitFollowed() {
	g.T.Helper()
	followed := func() (state string, ok bool) {
		ok = true
		for _, i := range g.Running() {
			list, err := grouptest.Collect(g.Nodes[i].Groups(grouptest.Within(g.T, time.Minute)))
			grouptest.Must(g.T, err)
			for _, of := range list {
				slices.Sort(of.Voters)
				ok = ok && of.Leader != 0 && slices.Contains(of.Voters, of.Leader) && slices.Equal(of.Voters, list[0].Voters)
				state += fmt.Sprintf("member %d, %s: voters %v, leader %v\n", i, of.Name, of.Voters, of.Leader)
			}
		}
		return state, ok
	}
	for deadline := time.Now().Add(5 * time.Minute); ; pass(100 * time.Millisecond) {
		state, ok := followed()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			g.T.Fatalf("the voters differ:\n%s", state)
		}
	}
}

// wantTenants checks that each running member can lock in each further group.
func (g *membership) wantTenants(names ...string) {
	g.T.Helper()
	for _, name := range names {
		for _, i := range g.Running() {
			l := g.Nodes[i].WithGroup(name).FencedLock("working")
			grouptest.MustLock(g.T, l)
			grouptest.MustUnlock(g.T, l)
		}
	}
}

// Further groups follow the members of the default one, from one member to seven, of which five vote, and back to one. What was locked and
// written remains.
func TestGroups_GrowAndShrink(t *testing.T) {
	inMembershipBubble(t, 7, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, time.Hour)
		g.tenants(0, "a", "b")
		grouptest.MustPut(t, g.Nodes[0].WithGroup("a").KV(), "k", "v")
		want := func(voters, standbys int) {
			t.Helper()
			g.awaitVoters(voters, standbys)
			g.awaitFollowed()
			g.wantTenants("a", "b")
		}
		want(1, 0)
		g.Start(1)
		want(1, 1)
		g.Start(2)
		want(3, 0)
		g.tenants(2, "c")
		grouptest.Must(t, g.Nodes[1].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 5, ReplaceAfter: time.Minute}))
		g.Start(3, 4)
		want(5, 0)
		g.Start(5, 6)
		want(5, 2)
		for i := range 4 {
			g.leave(i)
			g.awaitFollowed()
		}
		want(3, 0)
		g.wantTenants("c")
		g.leave(4)
		want(2, 0)
		g.leave(5)
		want(1, 0)
		if e := grouptest.MustGet(t, g.Nodes[6].WithGroup("a").KV(), "k"); string(e.Value) != "v" {
			t.Errorf("%q", e.Value)
		}
	}, grouptest.Newcomers(6), voters(3))
}

// The groups' snapshots for a new member follow each other, each sent once.
func TestGroups_SnapshotsOfMany(t *testing.T) {
	option, logs := journals(2)
	inMembershipBubble(t, 2, func(g *membership) {
		names := make([]string, 30)
		for i := range names {
			names[i] = fmt.Sprint("g", i)
		}
		g.tenants(0, names...)
		g.Start(1)
		g.awaitVoters(1, 1)
		g.awaitFollowed()
		for _, j := range logs {
			if failed := lines(g.T, j, 0, "snapshot not"); len(failed) > 0 {
				g.T.Errorf("%d snapshots have failed, the first: %s", len(failed), failed[0])
			}
		}
	}, grouptest.Newcomers(1), voters(3), option)
}

// A standby replaces a dead voter in each group, and a member that was removed while it was down is in none.
func TestGroups_ReplaceAndRemove(t *testing.T) {
	inMembershipBubble(t, 5, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, time.Hour)
		g.tenants(1, "a", "b")
		g.Start(3, 4)
		g.awaitVoters(3, 2)
		grouptest.Must(t, g.Nodes[0].SetGroupConfig(ctx, conclave.GroupConfig{Voters: 3, ReplaceAfter: 20 * time.Second}))
		held := grouptest.MustLock(t, g.Nodes[0].WithGroup("b").FencedLock("held"))
		dead := g.ID(1)
		g.Kill(1)
		pass(30 * time.Second)
		g.awaitFollowed()
		grouptest.Must(t, g.Nodes[0].RemoveMember(ctx, dead))
		g.awaitFollowed()
		g.Kill(2)
		g.wantTenants("a", "b")
		g.Start(2)
		g.awaitFollowed()
		if f, err := g.Nodes[0].WithGroup("b").FencedLock("held").Info(ctx); err != nil || f.Fence != held {
			t.Errorf("%+v, %v", f, err)
		}
		_, err := g.Open(1, time.Minute)
		grouptest.WantError(t, err, conclave.ErrRemoved)
	}, grouptest.Newcomers(2))
}

// A member that has lagged behind in a further group alone, and lacks what was compacted there, receives a snapshot of it.
func TestGroups_Snapshot(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		g.tenants(0, "a", "b")
		g.Kill(2)
		kv := g.Nodes[0].WithGroup("a").KV()
		for i := range 100 {
			grouptest.MustPut(t, kv, fmt.Sprint(i%10), fmt.Sprint(i))
		}
		g.Start(2)
		g.awaitFollowed()
		for i := range 10 {
			if e := grouptest.MustGet(t, g.Nodes[2].WithGroup("a").KV(), fmt.Sprint(i)); string(e.Value) != fmt.Sprint(90+i) {
				t.Errorf("%d: %q", i, e.Value)
			}
		}
		g.wantTenants("a", "b")
	}, grouptest.ShortLog)
}

// A session of a further group ends when the failure detector declares its member dead, long before its TTL.
func TestGroups_FailureDetector(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		g.tenants(0, "a")
		s, err := g.Nodes[1].WithGroup("a").NewSession(grouptest.Within(t, time.Minute), &conclave.SessionConfig{TTL: time.Hour, LockDelay: conclave.NoLockDelay})
		grouptest.Must(t, err)
		grouptest.MustLock(t, s.FencedLock("x"))
		g.Kill(1)
		began := time.Now()
		grouptest.MustLock(t, g.Nodes[2].WithGroup("a").FencedLock("x"))
		if took := time.Since(began); took > time.Minute {
			t.Errorf("granted after %v", took)
		}
	})
}

// A check with a TTL of a further group becomes critical by the clock of that group, and a standalone session there ends with it, or with its
// member.
func TestGroups_Checks(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		g.tenants(0, "a")
		owner, other := g.Nodes[1].WithGroup("a"), g.Nodes[2].WithGroup("a")
		check, err := owner.RegisterClientCheck(grouptest.Within(t, time.Minute), "web", 10*time.Second)
		grouptest.Must(t, err)
		open := func(checks ...string) conclave.SessionID {
			id, err := owner.CreateSession(grouptest.Within(t, time.Minute), &conclave.SessionConfig{TTL: time.Hour, Checks: checks})
			grouptest.Must(t, err)
			return id
		}
		alive := func(id conclave.SessionID) bool {
			_, err := other.SessionInfo(grouptest.Within(t, time.Minute), id)
			if err != nil {
				grouptest.WantError(t, err, conclave.ErrSessionNotFound)
			}
			return err == nil
		}
		web, gossip := open("web"), open("gossip")
		for range 5 {
			pass(8 * time.Second)
			grouptest.Must(t, check.Pass(grouptest.Within(t, time.Minute)))
		}
		pass(9 * time.Second)
		if !alive(web) {
			t.Error("the session ended before the check's TTL")
		}
		pass(3 * time.Second)
		if alive(web) || !alive(gossip) {
			t.Error("after the check's TTL its session lives, or another one has ended")
		}
		g.Kill(1)
		pass(time.Minute)
		if alive(gossip) {
			t.Error("the session lives a minute after its member was killed")
		}
	})
}

// The only voter leaves, and is partitioned from the standby as soon as the default group has removed it: the standby does not vote yet.
func TestGroups_OnlyVoterLeavesPartitioned(t *testing.T) {
	inMembershipBubble(t, 2, func(g *membership) {
		t := g.T
		g.tenants(0, "a")
		g.Start(1)
		g.awaitVoters(1, 1)
		g.awaitFollowed()
		left := make(chan error, 1)
		go func() { left <- g.Nodes[0].Leave(grouptest.Within(t, time.Hour)) }()
		for len(g.Member(0).Replica().Status().Removed) == 0 {
			pass(time.Microsecond)
		}
		g.Net.Isolate(0)
		pass(time.Minute)
		g.Net.Rejoin(0)
		grouptest.Must(t, <-left)
		g.Nodes[0] = nil
		g.awaitVoters(1, 0)
		g.awaitFollowed()
		g.wantTenants("a")
	}, grouptest.Newcomers(1), voters(1))
}
