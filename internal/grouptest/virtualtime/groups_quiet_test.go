package virtualtime

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
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
	skipIfShort(t)
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
	}, rareHeartbeats)
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
	skipIfShort(t)
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
	}, grouptest.Newcomers(1), rareHeartbeats)
}

// quietAfterUse is more than it takes until a group in which this process has a session of its own is quiet: two lives of a registration, and
// then quietAfter.
const quietAfterUse = 3*time.Minute + quietAfter

// A group that was used becomes quiet, too: the sessions that nodes have for their locks end when nothing is held by them. What is held, waits or
// works is left alone.
func TestGroups_QuietAfterUse(t *testing.T) {
	skipIfShort(t)
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		ctx := grouptest.Within(t, 24*time.Hour)
		g.tenants(0, "used", "held", "awaited", "worked")
		fences := make(map[int]conclave.Fence)
		for i, n := range g.Nodes {
			fences[i] = useOnce(ctx, t, n.WithGroup("used"))
		}
		held := g.Nodes[1].WithGroup("held").FencedLock("l")
		grouptest.MustLock(t, held)
		inTheWay := g.Nodes[0].WithGroup("awaited").FencedLock("l")
		grouptest.MustLock(t, inTheWay)
		order := make(chan int, 2)
		for i := 1; i <= 2; i++ {
			go func() {
				l := g.Nodes[i].WithGroup("awaited").FencedLock("l")
				if _, err := l.Lock(ctx); err != nil {
					t.Error(err)
				}
				order <- i
				grouptest.MustUnlock(t, l)
			}()
			pass(time.Second)
		}
		stop := g.standBy(ctx, "worked")
		pass(time.Second)
		before := sessionsOf(ctx, g, "held", "awaited", "worked")
		pass(quietAfterUse)
		if after := sessionsOf(ctx, g, "held", "awaited", "worked"); len(before) != 7 || !slices.Equal(before, after) {
			t.Errorf("the sessions that are in use were %v, and are %v", before, after)
		}
		g.wantQuiet(1, 0, 1, 2)
		if err := stop(); err != nil {
			t.Errorf("the workers of shards: %v", err)
		}
		grouptest.MustUnlock(t, held)
		grouptest.MustUnlock(t, inTheWay)
		if first, second := <-order, <-order; first != 1 || second != 2 {
			t.Errorf("granted in the order %d, %d", first, second)
		}
		for i, n := range g.Nodes {
			if f := useOnce(ctx, t, n.WithGroup("used")); f <= fences[i] {
				t.Errorf("fence %v follows %v", f, fences[i])
			}
		}
		pass(quietAfterUse)
		g.wantQuiet(3, 0, 1, 2)
	}, rareHeartbeats)
}

// sessionsOf lists the sessions of groups.
func sessionsOf(ctx context.Context, g *membership, groups ...string) (ids []conclave.SessionID) {
	for _, group := range groups {
		list, err := grouptest.Collect(g.Nodes[0].WithGroup(group).Sessions(ctx))
		grouptest.Must(g.T, err)
		for _, s := range list {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// useOnce takes and releases locks and permits of a group, and returns the last fence.
func useOnce(ctx context.Context, t testing.TB, g *conclave.Group) conclave.Fence {
	t.Helper()
	l := g.FencedLock("l")
	fence := grouptest.MustLock(t, l)
	grouptest.MustUnlock(t, l)
	permit, err := g.Semaphore("s", 3).Acquire(ctx, 1)
	grouptest.Must(t, err)
	grouptest.Must(t, permit.Release(ctx))
	lingering := g.FencedLock("lingers", conclave.Linger(time.Minute))
	grouptest.MustLock(t, lingering)
	grouptest.MustUnlock(t, lingering)
	return fence
}

// standBy has all nodes work on a set of one shard, and returns what stops them, and returns the error of the first that has ended by itself.
func (g *membership) standBy(ctx context.Context, group string) (stop func() error) {
	working, cancel := context.WithCancel(ctx)
	ended := make(chan error, len(g.Nodes))
	for _, n := range g.Nodes {
		go func() {
			ended <- n.WithGroup(group).Shards("s", 1).Run(working, func(ctx context.Context, _ int, _ conclave.Fence) error {
				<-ctx.Done()
				if working.Err() == nil {
					g.T.Error("a worker has lost its shard")
				}
				return nil
			})
		}()
	}
	return func() error {
		var first error
		if len(ended) > 0 {
			first = <-ended
		}
		cancel()
		return first
	}
}
