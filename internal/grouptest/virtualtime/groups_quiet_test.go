package virtualtime

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/grouptest"
)

// quietAfter is more than it takes until a group that is not used is quiet: the registrations expire, and what was applied goes to the disk.
const quietAfter = 4 * time.Minute

// quiet returns how many further groups are quiet on a member.
func (g *membership) quiet(i int) (n int) {
	for _, s := range g.Member(i).Groups().Status() {
		if s.Status != nil && s.Status.Quiet {
			n++
		}
	}
	return n
}

func (g *membership) wantQuiet(n int, members ...int) {
	g.T.Helper()
	for _, i := range members {
		if got := g.quiet(i); got != n {
			g.T.Errorf("%d groups are quiet on member %d, want %d", got, i, n)
		}
	}
}

// Groups that are not used become quiet, and serve each member at once. One in which a session is live is not quiet.
func TestGroups_Quiet(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		g.tenants(0, "a", "b", "c")
		held := g.Nodes[1].WithGroup("c").FencedLock("held")
		grouptest.MustLock(t, held)
		pass(quietAfter)
		g.wantQuiet(2, 0, 1, 2)
		for i, n := range g.Nodes {
			name := fmt.Sprint("k", i)
			began := time.Now()
			grouptest.MustPut(t, n.WithGroup("a").KV(), name, "v")
			l := n.WithGroup("b").FencedLock(name)
			grouptest.MustLock(t, l)
			grouptest.MustUnlock(t, l)
			if took := time.Since(began); took > time.Second {
				t.Errorf("member %d waited %v for quiet groups", i, took)
			}
		}
		g.wantTenants("a", "b", "c")
		grouptest.MustUnlock(t, held)
	})
}

// A member that is alone needs no other one's consent.
func TestGroups_QuietAlone(t *testing.T) {
	inMembershipBubble(t, 1, func(g *membership) {
		g.tenants(0, "a")
		pass(quietAfter)
		g.wantQuiet(1, 0)
		g.wantTenants("a")
	})
}

// The host of a quiet group's leader is lost: the group has another leader as soon as one that is not quiet.
func TestGroups_QuietLeaderLost(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		g.tenants(0, "a", "b")
		g.transferIn("a", 2)
		g.transferIn("b", 2)
		pass(quietAfter)
		g.wantQuiet(2, 0, 1, 2)
		g.Kill(2)
		pass(election)
		began := time.Now()
		for _, name := range []string{"a", "b"} {
			grouptest.MustPut(t, g.Nodes[0].WithGroup(name).KV(), "k", "v")
		}
		if took := time.Since(began); took > election {
			t.Errorf("%v without a leader", took)
		}
		g.wantQuiet(0, 0, 1)
		g.Restart(2)
		pass(quietAfter)
		g.wantQuiet(2, 0, 1, 2)
		g.wantTenants("a", "b")
	})
}

// Members leave and join, and groups are deleted, while all groups are quiet. The one that leaves leads one, in which its registration has
// expired.
func TestGroups_QuietMembership(t *testing.T) {
	inMembershipBubble(t, 4, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, 24*time.Hour)
		g.MustTransfer(g.Nodes[0], 0)
		g.tenants(0, "a", "b")
		g.transferIn("a", 2)
		g.transferIn("b", 1)
		pass(quietAfter)
		g.wantQuiet(2, 0, 1, 2)
		const standby = 3
		g.Start(standby)
		g.awaitFollowed()
		pass(quietAfter)
		g.wantQuiet(2, 0, 1, 2, standby)
		began := time.Now()
		grouptest.Must(t, g.Nodes[1].DeleteGroup(ctx, "b"))
		grouptest.Must(t, g.Nodes[2].Leave(ctx))
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the deletion and the removal took %v", took)
		}
		g.Nodes[2] = nil
		if _, err := g.Nodes[0].WithGroup("a").FencedLock("l").TryLock(ctx); err != nil {
			t.Error(err)
		}
	}, grouptest.Newcomers(1))
}
