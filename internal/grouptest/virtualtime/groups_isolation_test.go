package virtualtime

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A member does not come to what the others send it in one group. All other groups go on, over the same connections: a lock is granted
// without delay, by a leader there that needs the answers of the others, and no session ends.
func TestGroups_LoopOfOneStandsStill(t *testing.T) {
	inMembershipBubble(t, 3, func(g *membership) {
		t := g.T
		const still, other, down = 0, 1, 2
		g.tenants(other, "a")
		g.MustTransfer(g.Nodes[other], other)
		g.transferIn("a", still)
		a := g.Nodes[other].WithGroup("a")
		held := a.FencedLock("held")
		grouptest.MustLock(t, held)
		g.Kill(down)

		begun, end := make(chan struct{}), make(chan struct{})
		g.Member(still).Replica().Post(func(*core.Core) { close(begun); <-end })
		<-begun
		defer close(end)
		before := time.Now()
		put := make(chan error, 1)
		go func() { // it is sent to the other voters, and not committed by a majority
			_, err := g.Nodes[other].KV().Put(grouptest.Within(t, election), "k", []byte(strings.Repeat("v", 400<<10)))
			put <- err
		}()
		if err := <-put; err == nil {
			t.Fatal("a member that stands still has acknowledged an entry")
		}
		for range 100 {
			began := time.Now()
			l := a.FencedLock("taken and released")
			if _, err := l.Lock(grouptest.Within(t, time.Minute)); err != nil {
				t.Fatalf("%v after the loop began to stand still: %v", time.Since(before), err)
			}
			grouptest.MustUnlock(t, l)
			if took := time.Since(began); took >= election {
				t.Errorf("locked and unlocked in %v", took)
			}
			pass(heartbeat)
		}
		if _, err := held.Fence(); err != nil {
			t.Error(err)
		}
	})
}

// A lock of one group and one of the same name in another one are two, with fences of their own; each excludes its
// users on all members.
func TestGroup_LocksOfTheirOwn(t *testing.T) {
	t.Parallel()
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		t, ctx := g.T, grouptest.Bounded(g.T)
		tenant, err := g.Nodes[0].CreateGroup(ctx, "tenant", conclave.GroupConfig{})
		grouptest.Must(t, err)
		grouptest.MustLock(t, g.Nodes[0].FencedLock("x"))
		first := grouptest.MustLock(t, tenant.FencedLock("x"))
		for _, i := range g.All() {
			if _, err := g.Nodes[i].WithGroup("tenant").FencedLock("x").TryLock(ctx); !errors.Is(err, conclave.ErrLocked) {
				t.Errorf("member %d: %v", i, err)
			}
		}
		other := g.Nodes[1].WithGroup("tenant").FencedLock("x")
		again := grouptest.StartLock(t, other)
		l := tenant.FencedLock("y")
		grouptest.MustLock(t, l)
		grouptest.MustUnlock(t, l)
		s := grouptest.OwnSession(t, g.Nodes[0])
		grouptest.Must(t, g.Nodes[2].CloseSession(ctx, s)) // of the default group
		if locked, err := tenant.FencedLock("x").Info(ctx); err != nil || locked.Fence != first {
			t.Errorf("%+v, %v", locked, err)
		}
		list, err := grouptest.Collect(g.Nodes[2].Groups(ctx))
		grouptest.Must(t, err)
		numbers := make(map[string]uint32)
		for _, of := range list {
			numbers[of.Name] = of.Number
		}
		if len(numbers) != 2 || numbers["tenant"] != 1 {
			t.Errorf("groups %v", numbers)
		}
		g.Kill(0) // the holder: its session ends, and the waiter is granted the lock
		grouptest.Must(t, <-again.Err)
		if f, err := other.Fence(); err != nil || f <= first {
			t.Errorf("fence %v after %v: %v", f, first, err)
		}
	})
}
