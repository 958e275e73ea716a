package conclave

import (
	"errors"
	"sync"
	"testing"
)

// A process whose registration has expired registers again by itself, once, however
// many calls find out.
func TestRegistration_ExpiredDuringCalls(t *testing.T) {
	n := alone(t)
	forgotten := n.member.Status().Incarnation
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for range 20 {
				n.forgotten(forgotten) // as each call does whose incarnation is unknown
				l := n.FencedLock("x")
				if _, err := l.Lock(t.Context()); err != nil {
					t.Error(err)
					return
				}
				if err := l.Unlock(t.Context()); err != nil && !errors.Is(err, ErrLockOwnershipLost) {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if n.attempt != 1 {
		t.Errorf("registered %d times again", n.attempt)
	}
}

// A registration that expires before the process has its acknowledgement is no copied
// directory: the process registers again.
func TestRegistration_ExpiredBeforeAcknowledged(t *testing.T) {
	n := alone(t)
	if err := n.deregister(t.Context()); err != nil { // its registration expires
		t.Fatal(err)
	}
	if err := n.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLock(t, n.FencedLock("x"))
}
