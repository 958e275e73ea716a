package conclave

import (
	"errors"
	"testing"
	"time"
)

// A member leaves for good, whether it leads or not, and the others go on by a
// majority of themselves, down to the last.
func TestLeave(t *testing.T) {
	g := group(t, 3, nil)
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
	waiting := make(chan Fence, 1)
	go func() { waiting <- mustLock(t, other.FencedLock("x")) }()
	awaitWaiters(t, other.FencedLock("x"), 1)

	g.leave(t, leader)
	if again := <-waiting; again <= f {
		t.Errorf("fence %v after %v", again, f)
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
	_, err := open(within(t, 10*time.Second), &c, g.harness[i])
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
