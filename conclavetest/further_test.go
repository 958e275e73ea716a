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
	for name, fault := range map[string]struct {
		begin, end func(g *conclavetest.Group, i int)
	}{
		"killed":   {func(g *conclavetest.Group, i int) { g.Kill(i) }, func(g *conclavetest.Group, i int) { g.Restart(i) }},
		"isolated": {func(g *conclavetest.Group, i int) { g.Partition([]int{i}) }, func(g *conclavetest.Group, _ int) { g.Heal() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := bounded(t)
			group := conclavetest.Start(t, 3)
			createGroup(t, group.Node(0), "tenant")
			lockAt := func(i int) (*conclave.FencedLock, conclave.Fence) {
				l := group.Node(i).WithGroup("tenant").FencedLock("shared")
				return l, mustLock(t, ctx, l)
			}
			leader := group.LeaderOf("tenant")
			_, old := lockAt(leader)
			fault.begin(group, leader)
			next := group.LeaderOf("tenant")
			if next == leader {
				t.Fatalf("member %d leads though it has failed", leader)
			}
			lock, last := lockAt(next)
			if last <= old {
				t.Errorf("fence %v after %v", last, old)
			}
			if err := lock.Unlock(ctx); err != nil {
				t.Error(err)
			}
			fault.end(group, leader)
			if _, again := lockAt(group.LeaderOf("tenant")); again <= last {
				t.Errorf("fence %v after %v", again, last)
			}
		})
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
