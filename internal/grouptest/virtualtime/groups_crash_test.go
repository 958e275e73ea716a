package virtualtime

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/memdisk"
)

// A member erases the log of a deleted group and loses power, with the erasure on its disk and no commit index behind the deletion. Its
// next process still finds the group in its list. It must not begin the group again: a member that has not applied the deletion yet knows
// what it has acknowledged there, and would refuse it.
func TestDeleteGroup_PowerLossBehindErasure(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		const lagging, member, other = 2, 1, 0
		ctx := grouptest.Within(t, time.Hour)
		g.tenants(other, "x", "y")
		g.MustTransfer(g.Nodes[other], other)
		g.transferIn("x", lagging)
		grouptest.MustPut(t, g.Nodes[lagging].WithGroup("x").KV(), "k", "v")
		g.Net.Isolate(lagging)
		y := g.Nodes[member].WithGroup("y").KV()
		grouptest.MustPut(t, y, "k", "v")
		grouptest.Must(t, g.Nodes[member].DeleteGroup(ctx, "x", conclave.Force()))
		grouptest.MustPut(t, y, "k", "w") // its sync makes the erasure durable
		g.Crash(member)
		opened := make(chan error, 1)
		go func() {
			n, err := g.Open(member, 10*time.Minute)
			g.Nodes[member] = n
			opened <- err
		}()
		pass(5 * election)
		g.Net.Isolate(other)
		g.Net.Rejoin(lagging)
		g.Net.Rejoin(member)
		grouptest.Must(t, <-opened)
		g.Net.Rejoin(other)
		g.awaitFollowed()
		g.wantTenants("y")
		_, err := g.Nodes[lagging].WithGroup("x").FencedLock("l").TryLock(ctx)
		grouptest.WantError(t, err, conclave.ErrGroupNotFound)
	})
}

// A standby waits for the snapshot of one group when it erases the log of another one, and loses power. Its next process goes on to
// wait: the missing log is not that of a deleted group.
func TestDeleteGroup_PowerLossWhileAnotherIsAwaited(t *testing.T) {
	inMembershipBubble(t, 4, func(g *membership) {
		t := g.T
		const standby, leader = 3, 1
		ctx := grouptest.Within(t, time.Hour)
		g.tenants(0, "x", "awaited")
		g.MustTransfer(g.Nodes[0], 0)
		g.transferIn("x", 0)
		g.transferIn("awaited", leader)
		g.Net.Partition(leader, standby)
		g.Start(standby)
		grouptest.MustPut(t, g.Nodes[standby].KV(), "k", "v")
		grouptest.Must(t, g.Nodes[standby].DeleteGroup(ctx, "x", conclave.Force()))
		grouptest.MustPut(t, g.Nodes[standby].KV(), "k", "w")
		pass(election) // until a synced write has made the erasure durable
		if g.hasLog(standby, "awaited") {
			t.Fatal("the standby has received the snapshot")
		}
		g.Crash(standby)
		g.Net.Heal(leader, standby)
		g.Restart(standby)
		g.awaitFollowed()
		g.wantTenants("awaited")
	}, grouptest.Newcomers(1))
}

// A group is deleted, and another one of its name created, while a member is partitioned. Until that has applied the deletion, its handles
// are of the former group. CreateGroup returns one to the new group at once, and so does WithGroup from then on.
func TestCreateGroup_MemberLagsBehindDeletion(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		const lagging, member = 2, 1
		ctx := grouptest.Within(t, time.Hour)
		g.MustTransfer(g.Nodes[0], 0)
		g.tenants(member, "x")
		g.transferIn("x", 0)
		last := grouptest.MustLock(t, g.Nodes[lagging].WithGroup("x").FencedLock("l"))
		g.Disconnect(lagging)
		grouptest.Must(t, g.Nodes[member].DeleteGroup(ctx, "x", conclave.Force()))
		g.tenants(member, "x")
		former := g.Nodes[lagging].WithGroup("x")
		g.Net.Rejoin(lagging)
		x, err := g.Nodes[lagging].CreateGroup(ctx, "x", conclave.GroupConfig{})
		grouptest.Must(t, err)
		if f := grouptest.MustLock(t, x.FencedLock("l")); f <= last {
			t.Errorf("fence %v after %v", f, last)
		}
		_, err = g.Nodes[lagging].WithGroup("x").FencedLock("l").TryLock(ctx)
		grouptest.WantError(t, err, conclave.ErrLocked)
		_, err = former.FencedLock("l").TryLock(ctx)
		grouptest.WantError(t, err, conclave.ErrGroupNotFound)
	})
}

// A member starts on a copy of its directory that lacks the latest entries of one further group, and no others. It is refused in all
// groups, and stops; the other members go on. The default group's leader knows of nothing that was forgotten, so Open may return first.
func TestGroups_OlderCopyOfOneLog(t *testing.T) {
	const member = 2
	var disk *memdisk.Disk
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		g.MustTransfer(g.Nodes[0], 0)
		g.tenants(0, "a", "b")
		g.transferIn("a", 1)
		kv := g.Nodes[member].WithGroup("a").KV()
		grouptest.MustPut(t, kv, "k", "old")
		pass(election) // until the default group is quiet
		before := g.Nodes[0].Status().Commit
		older := disk.CrashClone(vfs.CrashCloneCfg{})
		grouptest.MustPut(t, kv, "k", "new")
		pass(time.Millisecond) // the leader has the member's acknowledgment
		if after := g.Nodes[0].Status().Commit; after != before {
			t.Fatalf("the default group has committed entries up to %d, want %d", after, before)
		}
		g.Kill(member)
		g.Seams[member].FS = older
		n, err := g.Open(member, time.Minute)
		if err == nil {
			<-n.Done()
			err = n.Err()
			grouptest.Kill(n)
		}
		grouptest.WantError(t, err, conclave.ErrCorrupt)
		if err != nil && !strings.Contains(err.Error(), "forgot acknowledged entries") {
			t.Error(err)
		}
		g.wantTenants("a", "b")
		if e := grouptest.MustGet(t, g.Nodes[0].WithGroup("a").KV(), "k"); string(e.Value) != "new" {
			t.Errorf("%q", e.Value)
		}
	}, grouptest.Edit(func(i int, _ *conclave.Config, s *cluster.Seams) {
		if i == member {
			disk = memdisk.On(s.FS.(*vfs.MemFS))
			s.FS = disk
		}
	}))
}

// hasLog reports whether a member has entries of a group.
func (g *membership) hasLog(i int, name string) bool {
	for _, s := range g.Member(i).Groups().Status() {
		if s.Record.Name == name && s.Status != nil {
			return s.Status.Applied > 0
		}
	}
	return false
}

// transferIn has a member lead a further group.
func (g *membership) transferIn(name string, to int) {
	g.T.Helper()
	for ctx := grouptest.Within(g.T, time.Minute); ; {
		if err := g.Nodes[to].WithGroup(name).TransferLeadership(ctx, g.ID(to)); err == nil {
			return
		} else if !errors.Is(err, conclave.ErrInvalid) {
			g.T.Fatal(err)
		}
	}
}
