package grouptest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// leaving starts a group in which sessions end when members leave, not by their TTL.
func leaving(t *testing.T, members int) *Group {
	t.Helper()
	return Start(t, members)
}

// Members leave, the leader first, and the others have a quorum of their own, down to
// the last one.
func TestLeave(t *testing.T) {
	t.Parallel()
	g := leaving(t, 3)
	ctx := Bounded(t)
	leader := g.Leader()
	other := g.Nodes[(leader+1)%3]

	s, err := g.Nodes[leader].NewSession(ctx, &conclave.SessionConfig{TTL: conclave.NoTTL, LockDelay: time.Second, NoChecks: true})
	if err != nil {
		t.Fatal(err)
	}
	f := MustLock(t, s.FencedLock("x"))
	own := g.Nodes[leader].FencedLock("own")
	MustLock(t, own)
	type grant struct {
		fence conclave.Fence
		err   error
	}
	waiting := make(chan grant, 1)
	go func() {
		again, err := other.FencedLock("x").Lock(ctx)
		waiting <- grant{again, err}
	}()
	AwaitWaiters(t, other.FencedLock("x"), 1)

	g.leave(t, leader)
	if got := <-waiting; got.err != nil || got.fence <= f {
		t.Errorf("fence %v after %v, %v", got.fence, f, got.err)
	}
	MustLock(t, other.FencedLock("own"))
	if _, err := own.Fence(); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		t.Error(err)
	}
	g.AwaitMembers(2)

	// The removal of one of two voters needs both to commit.
	g.leave(t, (leader+2)%3)
	g.AwaitMembers(1)
	WantError(t, other.Leave(ctx), conclave.ErrLastVoter)
	MustLock(t, other.FencedLock("alone"))
	last := (leader + 1) % 3
	g.Kill(last)
	g.Start(last)
	MustLock(t, g.Nodes[last].FencedLock("alone"))
	g.AwaitMembers(1)
}

// Leave is refused while the other members would have no quorum, and the node keeps
// running.
func TestLeave_OthersWithoutQuorum(t *testing.T) {
	t.Parallel()
	g := leaving(t, 3)
	leader := g.Leader()
	g.Kill((leader + 1) % 3)
	n := g.Nodes[(leader+2)%3]
	g.AwaitLeaveRefused((leader + 2) % 3)
	err := n.Leave(Bounded(t))
	WantError(t, err, conclave.ErrUnavailable)
	MustLock(t, n.FencedLock("y"))
	g.Start((leader + 1) % 3)
	g.leave(t, (leader+2)%3)
	g.AwaitMembers(2)
}

// A member is killed after its removal was committed and before it learned of it. Open
// reports it; with two voters its vote is needed first.
func TestLeave_KilledBeforeMemberLearnsOfRemoval(t *testing.T) {
	t.Parallel()
	for _, members := range []int{2, 3} {
		g := leaving(t, members)
		x := (g.Leader() + 1) % members
		g.RequestRemoval(x)
		g.Kill(x)
		c := g.Configs[x]
		for range 2 {
			_, err := conclave.Open(cluster.WithSeams(Bounded(t), g.Seams[x]), &c)
			WantError(t, err, conclave.ErrRemoved)
		}
		g.AwaitMembers(members - 1)
		MustLock(t, g.Nodes[g.Leader()].FencedLock("x"))
	}
}

// All members leave at the same time: at least one remains.
func TestLeave_AllAtOnce(t *testing.T) {
	t.Parallel()
	g := leaving(t, 3)
	g.Leader()
	ctx := Within(t, 3*time.Second)
	var left sync.WaitGroup
	outcomes := make([]error, 3)
	for i, n := range g.Nodes {
		left.Go(func() { outcomes[i] = n.Leave(ctx) })
	}
	left.Wait()
	stayed := 0
	for i, err := range outcomes {
		t.Log(i, err)
		if err == nil {
			g.Nodes[i] = nil
		} else {
			stayed++
		}
	}
	if stayed == 0 {
		t.Fatal("no member remains")
	}
}

// With a context that has ended Leave and TransferLeadership do nothing.
func TestLeave_ContextEndedBefore(t *testing.T) {
	t.Parallel()
	g := leaving(t, 2)
	n := g.Nodes[g.Leader()]
	WantError(t, n.Leave(Expired()), context.Canceled)
	err := n.TransferLeadership(Expired(), 0)
	WantError(t, err, context.Canceled)
	if errors.Is(err, conclave.ErrUnknown) {
		t.Errorf("%v: leadership cannot have moved", err)
	}
	MustLock(t, n.FencedLock("x"))
	g.AwaitMembers(2)
}

// Close bounds a concurrent Leave by its own graceful shutdown, when there is no quorum
// for the removal and the context of Leave does not end.
func TestLeave_BoundedByClose(t *testing.T) {
	t.Parallel()
	for _, ctx := range []context.Context{Expired(), context.Background()} {
		g := leaving(t, 2)
		leader := g.Leader()
		n := g.Nodes[leader]
		g.Kill((leader + 1) % 2)
		g.Nodes[leader] = nil
		left := make(chan error, 1)
		go func() { left <- n.Leave(context.Background()) }()
		n.Close(ctx)
		// Unavailable, with no effect, if Leave has noticed before that the other is gone.
		wantOneOf(t, <-left, conclave.ErrUnknown, conclave.ErrClosed, conclave.ErrUnavailable)
	}
}

func wantOneOf(t *testing.T, err error, wanted ...error) {
	t.Helper()
	for _, want := range wanted {
		if errors.Is(err, want) {
			return
		}
	}
	t.Errorf("%v is none of %v", err, wanted)
}

// leave has a member leave, and checks that its directory is refused.
func (g *Group) leave(t *testing.T, i int) {
	t.Helper()
	n := g.Nodes[i]
	g.Nodes[i] = nil
	if err := n.Leave(Bounded(t)); err != nil {
		t.Fatal(err)
	}
	WantError(t, n.Leave(t.Context()), conclave.ErrClosed)
	WantError(t, n.Err(), conclave.ErrClosed)
	c := g.Configs[i]
	_, err := conclave.Open(cluster.WithSeams(Bounded(t), g.Seams[i]), &c)
	WantError(t, err, conclave.ErrRemoved)
}
