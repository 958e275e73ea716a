package conclavetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
)

// bounded returns a context for calls that must return soon.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustLock(t *testing.T, ctx context.Context, l *conclave.FencedLock) conclave.Fence {
	t.Helper()
	fence, err := l.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return fence
}

// grant is the result of a waiting Lock.
type grant struct {
	fence conclave.Fence
	err   error
}

// queue starts a Lock, and returns when the group has it in the queue.
func queue(t *testing.T, ctx context.Context, l *conclave.FencedLock) <-chan grant {
	t.Helper()
	granted := make(chan grant, 1)
	go func() {
		fence, err := l.Lock(ctx)
		granted <- grant{fence, err}
	}()
	for ; ; <-time.After(time.Millisecond) { // nothing signals it
		info, err := l.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info.Waiters > 0 {
			return granted
		}
	}
}

func (g grant) mustBeAfter(t *testing.T, old conclave.Fence) {
	t.Helper()
	if g.err != nil || g.fence <= old {
		t.Fatalf("granted with fence %v after %v: %v", g.fence, old, g.err)
	}
}

// Every member can lock, all see the same group, one of them leads.
func TestStart_Forms(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			ctx := bounded(t)
			group := conclavetest.Start(t, n)
			if got := len(group.Nodes()); got != n {
				t.Fatalf("%d nodes", got)
			}
			var last conclave.Fence
			for i, node := range group.Nodes() {
				lock := node.FencedLock("shared")
				fence := mustLock(t, ctx, lock)
				if fence <= last {
					t.Errorf("member %d got fence %v after %v", i, fence, last)
				}
				last = fence
				if err := lock.Unlock(ctx); err != nil {
					t.Error(err)
				}
				if s := node.Status(); len(s.Members) != n {
					t.Errorf("member %d sees %+v", i, s)
				}
			}
		})
	}
}

// The leader is killed while it holds a lock with a waiter: another member leads, and
// the waiter is granted when the session has expired.
func TestKill_LeaderHolds(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	group := conclavetest.Start(t, 3)
	leader := group.Leader()
	old := mustLock(t, ctx, group.Node(leader).FencedLock("shared"))
	granted := queue(t, ctx, group.Node((leader+1)%3).FencedLock("shared"))

	group.Kill(leader)
	if next := group.Leader(); next == leader {
		t.Fatalf("member %d leads though it was killed", leader)
	}
	(<-granted).mustBeAfter(t, old)
	if got := len(group.Nodes()); got != 2 {
		t.Errorf("%d nodes run", got)
	}
	if err := group.Node(leader).Err(); !errors.Is(err, conclave.ErrClosed) {
		t.Errorf("the killed node: %v", err)
	}
}

// One member, then all, restart with their directories, identities and state, on other
// ports.
func TestRestart(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	group := conclavetest.Start(t, 3, conclavetest.Configure(func(_ int, c *conclave.Config) { c.SessionTTL = time.Minute }))
	before := group.Node(2).Status()
	addr := group.Node(2).Addr()
	last := mustLock(t, ctx, group.Node(0).FencedLock("shared"))

	group.Kill(2)
	group.Restart(2)
	after := group.Node(2).Status()
	if after.ID != before.ID || len(after.Members) != 3 {
		t.Errorf("restarted as %+v, was %+v", after, before)
	}
	if group.Node(2).Addr() == addr {
		t.Error("restarted on the same port")
	}
	if _, err := group.Node(2).FencedLock("shared").TryLock(ctx); !errors.Is(err, conclave.ErrLocked) {
		t.Errorf("the restarted member does not know the holder: %v", err)
	}

	group.Kill(0, 1, 2)
	group.Restart(0, 1, 2)
	if fence := mustLock(t, ctx, group.Node(1).FencedLock("shared")); fence <= last {
		t.Errorf("fence %v after %v", fence, last)
	}
}

// The holder is isolated, as leader and as follower. It knows of its loss before another
// owner is granted. After Heal it works again, and reports the loss.
func TestPartition_Holder(t *testing.T) {
	t.Parallel()
	for name, behind := range map[string]int{"leader": 0, "follower": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := bounded(t)
			group := conclavetest.Start(t, 3)
			holder := (group.Leader() + behind) % 3
			other := group.Node((holder + 1) % 3).FencedLock("shared")
			lock := group.Node(holder).FencedLock("shared")
			old := mustLock(t, ctx, lock)
			lost := lock.Lost()
			granted := queue(t, ctx, other)

			group.Partition([]int{holder})
			if leader := group.Leader(); leader == holder {
				t.Fatalf("member %d leads and is alone", holder)
			}
			next := <-granted
			if _, err := lock.Fence(); !errors.Is(err, conclave.ErrLockOwnershipLost) {
				t.Fatalf("granted to another owner before the holder knew of its loss: %v", err)
			}
			<-lost
			next.mustBeAfter(t, old)

			group.Heal()
			if err := lock.Unlock(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
				t.Errorf("the old holder's unlock: %v", err)
			}
			if err := other.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
			if fence := mustLock(t, ctx, lock); fence <= next.fence {
				t.Errorf("fence %v after %v", fence, next.fence)
			}
		})
	}
}

// A call on the side without a majority blocks, and succeeds when the network heals.
func TestPartition_MinorityBlocks(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	group := conclavetest.Start(t, 4, conclavetest.Configure(func(_ int, cfg *conclave.Config) {
		cfg.Dir = "" // not restarted
	}))
	leader := group.Leader()
	group.Partition([]int{leader}, []int{(leader + 1) % 4})
	var waiting sync.WaitGroup
	for _, i := range []int{leader, (leader + 1) % 4} {
		lock := group.Node(i).FencedLock(fmt.Sprint("of ", i))
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		if _, err := lock.Lock(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("member %d alone: %v", i, err)
		}
		cancel()
		waiting.Go(func() {
			if _, err := lock.Lock(ctx); err != nil {
				t.Errorf("member %d after Heal: %v", i, err)
			}
		})
	}
	group.Heal()
	waiting.Wait()
}

// Settings of the test apply, and its events are called.
func TestConfigure(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	led := make(chan int, 1)
	group := conclavetest.Start(t, 3, conclavetest.Configure(func(i int, cfg *conclave.Config) {
		cfg.Name = fmt.Sprint("mine-", i)
		cfg.SessionTTL = time.Minute
		cfg.Events = &conclave.Events{LeaderChanged: func(conclave.Member, uint64) {
			select {
			case led <- i:
			default: // the first is enough
			}
		}}
	}))
	if name := group.Node(1).Status().Name; name != "mine-1" {
		t.Errorf("the name is %q", name)
	}
	mustLock(t, ctx, group.Node(1).FencedLock("shared"))
	sessions := 0
	for s, err := range group.Node(0).Sessions(ctx) {
		if sessions++; err != nil || s.TTL != time.Minute {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if sessions != 1 {
		t.Errorf("%d sessions, want 1", sessions)
	}
	<-led
}
