package conclavetest_test

import (
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
)

func createGroup(t *testing.T, n *conclave.Node, name string) {
	t.Helper()
	if _, err := n.CreateGroup(bounded(t), name, conclave.GroupConfig{}); err != nil {
		t.Fatal(err)
	}
}

// The leader of a further group is killed, and isolated: another member leads it, and the holder's fence is exceeded.
func TestLeaderOf_LeaderFails(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	group := conclavetest.Start(t, 3)
	createGroup(t, group.Node(0), "tenant")
	var last conclave.Fence
	for _, fault := range []struct{ begin, end func(i int) }{
		{func(i int) { group.Kill(i) }, func(i int) { group.Restart(i) }},
		{func(i int) { group.Partition([]int{i}) }, func(int) { group.Heal() }},
	} {
		leader := group.LeaderOf("tenant")
		old := mustLock(t, ctx, group.Node(leader).WithGroup("tenant").FencedLock("shared"))
		if old <= last {
			t.Errorf("fence %v after %v", old, last)
		}
		fault.begin(leader)
		next := group.LeaderOf("tenant")
		if next == leader {
			t.Fatalf("member %d leads though it has failed", leader)
		}
		lock := group.Node(next).WithGroup("tenant").FencedLock("shared")
		if last = mustLock(t, ctx, lock); last <= old {
			t.Errorf("fence %v after %v", last, old)
		}
		if err := lock.Unlock(ctx); err != nil {
			t.Error(err)
		}
		fault.end(leader)
	}
}

// Each group has a leader of its own.
func TestLeaderOf_EachGroup(t *testing.T) {
	t.Parallel()
	group := conclavetest.Start(t, 1)
	for _, name := range []string{"tenant-1", "tenant-2"} {
		createGroup(t, group.Node(0), name)
		if leader := group.LeaderOf(name); leader != 0 {
			t.Errorf("member %d leads %s", leader, name)
		}
	}
	if leader := group.LeaderOf(group.Node(0).Status().Group); leader != 0 {
		t.Errorf("member %d leads the default group", leader)
	}
}
