package conclave

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
)

// How a node ends while its callers are at it. Nobody may be left waiting.

// A disk fails under callers that need the node's session opened: each of their
// calls comes back, Done is closed, and Close returns.
func TestDiskFailsWhileTheSessionIsOpened(t *testing.T) {
	for range 20 {
		disk := &faultyDisk{kind: errorfs.OpFileSyncData, reason: syscall.EIO}
		g := group(t, 1, func(_ int, c *Config, h *cluster.Seams) {
			c.Dir = "data"
			h.FS = errorfs.Wrap(vfs.NewMem(), disk)
		})
		n := g.nodes[0]
		disk.broken.Store(true)
		var callers sync.WaitGroup
		for range 32 {
			l := n.FencedLock("x")
			callers.Go(func() {
				for !errors.Is(n.usable(), ErrClosed) {
					_, _ = l.Lock(context.Background())
				}
			})
		}
		<-n.Done()
		callers.Wait()
		n.Close(context.Background())
	}
}

// A panic in the loop, of raft or of anybody, stops the node and answers every
// call that waits, those included that stood behind the panic.
func TestPanicInTheLoopAnswersEverybody(t *testing.T) {
	n := alone(t)
	stuck, block := make(chan struct{}), make(chan struct{})
	go n.member.Read(context.Background(), func(cluster.Machine) {
		close(stuck)
		<-block
		panic("planted")
	})
	<-stuck
	var waiting sync.WaitGroup
	errs := make(chan error, 40)
	for i := range cap(errs) {
		waiting.Go(func() {
			switch i % 4 {
			case 0:
				errs <- n.CloseSession(context.Background(), SessionID{1})
			case 1:
				_, err := n.FencedLock("x").Lock(context.Background())
				errs <- err
			case 2:
				_, err := n.Locks(context.Background(), "")
				errs <- err
			case 3:
				errs <- n.TransferLeadership(context.Background(), 0)
			}
		})
	}
	close(block)
	<-n.Done()
	waiting.Wait()
	close(errs)
	for err := range errs {
		if err == nil {
			t.Error("a call succeeds in a node that has stopped")
		}
	}
	if n.Err() == nil {
		t.Error("nobody says why the node has stopped")
	}
}

// A session that is acknowledged later than its TTL is lost from the start.
func TestSessionAcknowledgedTooLate(t *testing.T) {
	n := alone(t)
	s := newSession(n, wire.ID{1}, wire.ID{2}, time.Second, n.clock.now()-instant(time.Minute))
	<-s.Done()
	wantError(t, s.Err(), ErrSessionExpired)
}

func TestTransferToNobody(t *testing.T) {
	g := group(t, 3, nil)
	leader := g.nodes[g.leader()]
	wantError(t, leader.TransferLeadership(context.Background(), 99), ErrInvalid)
	dead := (g.leader() + 1) % 3
	id := g.nodes[dead].id
	g.kill(dead)
	if err := leader.TransferLeadership(context.Background(), id); err != nil {
		wantError(t, err, ErrInvalid)
	}
}

// The group forgets a process that has no session and was silent for long. It
// comes back by itself, once, however many calls find out.
func TestForgottenProcessComesBack(t *testing.T) {
	n := alone(t)
	forgotten := n.member.Status().Incarnation
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for range 20 {
				n.forgotten(forgotten) // as each call does whose incarnation is not known
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

// A start whose registration was acknowledged to nobody and then forgotten is
// not a copied directory: it is registered anew.
func TestForgottenBeforeItWasHeard(t *testing.T) {
	n := alone(t)
	if err := n.deregister(t.Context()); err != nil { // the group forgets it at once
		t.Fatal(err)
	}
	if err := n.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLock(t, n.FencedLock("x"))
}

func TestLockerUnlocksAfterItsContext(t *testing.T) {
	n := alone(t)
	ctx, cancel := context.WithCancel(t.Context())
	l := n.FencedLock("x")
	l.Locker(ctx).Lock()
	cancel()
	l.Locker(ctx).Unlock()
	mustLock(t, n.FencedLock("x"))
}
