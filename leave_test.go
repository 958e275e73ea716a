package conclave

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster"
)

// leaving is a group in which no session ends by time, however slow the machine
// is: what goes with a member goes because it leaves.
func leaving(t *testing.T, members int) *testGroup {
	t.Helper()
	return group(t, members, func(_ int, c *Config, _ *cluster.Seams) { c.SessionTTL = time.Minute })
}

// A member leaves for good, whether it leads or not, and the others go on by a
// majority of themselves, down to the last.
func TestLeave(t *testing.T) {
	g := leaving(t, 3)
	ctx := within(t, 60*time.Second)
	leader := g.leader()
	other := g.nodes[(leader+1)%3]

	s, err := g.nodes[leader].NewSession(ctx, &SessionConfig{TTL: NoTTL, LockDelay: time.Second, Checks: NoChecks})
	if err != nil {
		t.Fatal(err)
	}
	f := mustLock(t, s.FencedLock("x"))
	own := g.nodes[leader].FencedLock("own")
	mustLock(t, own)
	type grant struct {
		fence Fence
		err   error
	}
	waiting := make(chan grant, 1)
	go func() {
		again, err := other.FencedLock("x").Lock(ctx)
		waiting <- grant{again, err}
	}()
	awaitWaiters(t, other.FencedLock("x"), 1)

	g.leave(t, leader)
	if got := <-waiting; got.err != nil || got.fence <= f {
		t.Errorf("fence %v after %v, %v", got.fence, f, got.err)
	}
	mustLock(t, other.FencedLock("own"))
	if _, err := own.Fence(); !errors.Is(err, ErrLockOwnershipLost) {
		t.Error(err)
	}
	g.wantMembers(t, 2)

	// Of two voters both have to agree that one goes; the other is alone then.
	g.leave(t, (leader+2)%3)
	g.wantMembers(t, 1)
	wantError(t, other.Leave(ctx), ErrInvalid)
	mustLock(t, other.FencedLock("alone"))
	last := (leader + 1) % 3
	g.kill(last)
	g.start(last)
	mustLock(t, g.nodes[last].FencedLock("alone"))
	g.wantMembers(t, 1)
}

// A member that would take the majority along with it does not leave, and runs on.
func TestLeaveNeedsAMajorityToStay(t *testing.T) {
	g := leaving(t, 3)
	leader := g.leader()
	g.kill((leader + 1) % 3)
	n := g.nodes[(leader+2)%3]
	for n.member.CheckLeave() == nil {
		<-time.After(time.Millisecond) // until the connection to the dead one has broken; nothing says when
	}
	err := n.Leave(within(t, 20*time.Second))
	wantError(t, err, ErrUnavailable)
	mustLock(t, n.FencedLock("y"))
	g.start((leader + 1) % 3)
	g.leave(t, (leader+2)%3)
	g.wantMembers(t, 2)
}

// A member that is stopped after it has left, and before it has heard that it is
// out, is told when it is opened again; with two voters its vote is needed for
// that first.
func TestLeaveInterrupted(t *testing.T) {
	for _, members := range []int{2, 3} {
		g := leaving(t, members)
		x := (g.leader() + 1) % members
		sayLeft(t, g.nodes[x])
		g.kill(x)
		c := g.configs[x]
		for range 2 {
			_, err := Open(cluster.WithSeams(within(t, 20*time.Second), g.seams[x]), &c)
			wantError(t, err, ErrInvalid)
		}
		g.wantMembers(t, members-1)
		mustLock(t, g.nodes[g.leader()].FencedLock("x"))
	}
}

// sayLeft is the part of Leave that makes it a fact. The member may hear that it is
// out, and stop, before it hears the answer.
func sayLeft(t *testing.T, n *Node) {
	t.Helper()
	if err := n.member.RequestRemoval(within(t, time.Minute)); err != nil && !errors.Is(err, cluster.ErrRemoved) {
		t.Fatal(err)
	}
}

// All want to leave at once: not all can, and who stays goes on.
func TestAllLeave(t *testing.T) {
	g := leaving(t, 3)
	g.leader()
	ctx := within(t, 3*time.Second)
	var left sync.WaitGroup
	outcomes := make([]error, 3)
	for i, n := range g.nodes {
		left.Go(func() { outcomes[i] = n.Leave(ctx) })
	}
	left.Wait()
	stayed := 0
	for i, err := range outcomes {
		t.Log(i, err)
		if err == nil {
			g.nodes[i] = nil
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
	n := g.nodes[g.leader()]
	wantError(t, n.Leave(expired), context.Canceled)
	err := n.TransferLeadership(expired, 0)
	wantError(t, err, context.Canceled)
	if errors.Is(err, ErrUnknown) {
		t.Errorf("it is %v whether leadership has moved", err)
	}
	mustLock(t, n.FencedLock("x"))
	g.wantMembers(t, 2)
}

// Close does not wait for a Leave longer than for its own farewell, not for one that
// nobody is there to agree to and that has all the time in the world.
func TestCloseHurriesLeave(t *testing.T) {
	for _, ctx := range []context.Context{expired, context.Background()} {
		g := leaving(t, 2)
		leader := g.leader()
		n := g.nodes[leader]
		g.kill((leader + 1) % 2)
		g.nodes[leader] = nil
		left := make(chan error, 1)
		go func() { left <- n.leave(context.Background()) }()
		n.Close(ctx)
		wantOneOf(t, <-left, ErrUnknown, ErrClosed)
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
func (g *testGroup) leave(t *testing.T, i int) {
	t.Helper()
	n := g.nodes[i]
	g.nodes[i] = nil
	if err := n.Leave(within(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantError(t, n.Leave(t.Context()), ErrClosed)
	wantError(t, n.Err(), ErrClosed)
	c := g.configs[i]
	_, err := Open(cluster.WithSeams(within(t, 10*time.Second), g.seams[i]), &c)
	wantError(t, err, ErrInvalid)
}

// wantMembers waits until all that run see so many members.
func (g *testGroup) wantMembers(t *testing.T, want int) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	for _, n := range g.nodes {
		for n != nil && len(n.Status().Members) != want {
			if ctx.Err() != nil {
				t.Fatalf("%s sees %d members, not %d", n.cfg.Name, len(n.Status().Members), want)
			}
			<-time.After(time.Millisecond) // Status is a view; nothing says when it changes
		}
	}
}
