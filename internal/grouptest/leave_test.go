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

// leaving is a group in which no session ends by time, however slow the machine
// is: what goes with a member goes because it leaves.
func leaving(t *testing.T, members int) *Group {
	t.Helper()
	return Start(t, members, LongSessions)
}

// A member leaves for good, whether it leads or not, and the others go on by a
// majority of themselves, down to the last.
func TestLeave(t *testing.T) {
	g := leaving(t, 3)
	ctx := Within(t, 60*time.Second)
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

	// Of two voters both have to agree that one goes; the other is alone then.
	g.leave(t, (leader+2)%3)
	g.AwaitMembers(1)
	WantError(t, other.Leave(ctx), conclave.ErrInvalid)
	MustLock(t, other.FencedLock("alone"))
	last := (leader + 1) % 3
	g.Kill(last)
	g.Start(last)
	MustLock(t, g.Nodes[last].FencedLock("alone"))
	g.AwaitMembers(1)
}

// A member that would take the majority along with it does not leave, and runs on.
func TestLeaveNeedsAMajorityToStay(t *testing.T) {
	g := leaving(t, 3)
	leader := g.Leader()
	g.Kill((leader + 1) % 3)
	n := g.Nodes[(leader+2)%3]
	g.AwaitLeaveRefused((leader + 2) % 3)
	err := n.Leave(Within(t, 20*time.Second))
	WantError(t, err, conclave.ErrUnavailable)
	MustLock(t, n.FencedLock("y"))
	g.Start((leader + 1) % 3)
	g.leave(t, (leader+2)%3)
	g.AwaitMembers(2)
}

// A member that is stopped after it has left, and before it has heard that it is
// out, is told when it is opened again; with two voters its vote is needed for
// that first.
func TestLeaveInterrupted(t *testing.T) {
	for _, members := range []int{2, 3} {
		g := leaving(t, members)
		x := (g.Leader() + 1) % members
		g.RequestRemoval(x)
		g.Kill(x)
		c := g.Configs[x]
		for range 2 {
			_, err := conclave.Open(cluster.WithSeams(Within(t, 20*time.Second), g.Seams[x]), &c)
			WantError(t, err, conclave.ErrInvalid)
		}
		g.AwaitMembers(members - 1)
		MustLock(t, g.Nodes[g.Leader()].FencedLock("x"))
	}
}

// All want to leave at once: not all can, and who stays goes on.
func TestAllLeave(t *testing.T) {
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
		t.Fatal("nobody is left")
	}
}

// Nobody is asked in a context that has ended.
func TestLeaveInAContextThatHasEnded(t *testing.T) {
	g := leaving(t, 2)
	n := g.Nodes[g.Leader()]
	WantError(t, n.Leave(Expired()), context.Canceled)
	err := n.TransferLeadership(Expired(), 0)
	WantError(t, err, context.Canceled)
	if errors.Is(err, conclave.ErrUnknown) {
		t.Errorf("it is %v whether leadership has moved", err)
	}
	MustLock(t, n.FencedLock("x"))
	g.AwaitMembers(2)
}

// Close does not wait for a Leave longer than for its own farewell, not for one that
// nobody is there to agree to and that has all the time in the world.
func TestCloseHurriesLeave(t *testing.T) {
	for _, ctx := range []context.Context{Expired(), context.Background()} {
		g := leaving(t, 2)
		leader := g.Leader()
		n := g.Nodes[leader]
		g.Kill((leader + 1) % 2)
		g.Nodes[leader] = nil
		left := make(chan error, 1)
		go func() { left <- n.Leave(context.Background()) }()
		n.Close(ctx)
		wantOneOf(t, <-left, conclave.ErrUnknown, conclave.ErrClosed)
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

// leave lets a member leave, and wants its directory to be refused.
func (g *Group) leave(t *testing.T, i int) {
	t.Helper()
	n := g.Nodes[i]
	g.Nodes[i] = nil
	if err := n.Leave(Within(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	WantError(t, n.Leave(t.Context()), conclave.ErrClosed)
	WantError(t, n.Err(), conclave.ErrClosed)
	c := g.Configs[i]
	_, err := conclave.Open(cluster.WithSeams(Within(t, 10*time.Second), g.Seams[i]), &c)
	WantError(t, err, conclave.ErrInvalid)
}
