package client

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Below the level a member would queue the request, so it is not submitted. What does not wait needs no level.
func TestLock_RefuseDeadlockBelowLevel(t *testing.T) {
	c, g := newFake(t)
	lease := mustOpen(t, c, time.Hour)
	l := new(RWLock)
	l.Init(c, LockConfig{Lease: lease, Name: "x", RefuseDeadlock: true})
	before := g.last()
	_, err := l.Acquire(t.Context(), true, nil)
	if !isCode(err, wire.Code_LEVEL) || g.last() != before {
		t.Errorf("got %v, want LEVEL, and nothing submitted", err)
	}
	if _, err := l.Acquire(t.Context(), false, nil); err != nil {
		t.Error(err)
	}
}

// The option is for requests that wait, and for no other handle.
func TestLock_RefuseDeadlockSubmitted(t *testing.T) {
	c, _ := newFake(t)
	lease := mustOpen(t, c, time.Hour)
	with, without := newRWLock(t, c, LockConfig{Lease: lease, RefuseDeadlock: true}), newRWLock(t, c, LockConfig{Lease: lease})
	for _, shared := range []bool{false, true} {
		for _, wait := range []bool{false, true} {
			w := wanted{shared: shared, wait: wait}
			if got := with.lockCommand(lease, nil, w).GetLock().GetRefuseDeadlock(); got != wait {
				t.Errorf("%+v is submitted with refuse_deadlock %v", w, got)
			}
			if without.lockCommand(lease, nil, w).GetLock().GetRefuseDeadlock() {
				t.Errorf("%+v is submitted with refuse_deadlock by a handle without it", w)
			}
		}
	}
}
