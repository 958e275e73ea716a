package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// campaign waits for the lock, holds it until it is lost, and begins again,
// until ctx ends or the node stops. The error says why the node stopped.
func campaign(ctx context.Context, node *conclave.Node, name string, say teller) error {
	lock := node.FencedLock(name)
	for {
		fence, err := acquire(ctx, node, lock, say)
		if errors.Is(err, conclave.ErrSessionExpired) {
			say("the session ended while waiting (%v); queueing up again", err)
			continue
		}
		if err != nil {
			return reason(ctx, node, err)
		}
		say("HOLDER of %q with fence %v", name, fence)

		// Here the work would be done, with the fence in each request to what
		// the lock protects. FencedLock.Do wraps all of this; here it is shown.
		select {
		case <-lock.Lost():
			say("LOST %q, fence %v: whatever it protects may be in other hands", name, fence)
			// The hold that was lost is given back; then the handle is as new.
			if err := lock.Unlock(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
				return reason(ctx, node, err)
			}
		case <-ctx.Done():
			return nil // Close gives the lock back
		}
		if node.Err() != nil {
			return node.Err()
		}
	}
}

// reason is nil if we were asked to end, and the node's if it has stopped.
func reason(ctx context.Context, node *conclave.Node, err error) error {
	switch {
	case ctx.Err() != nil:
		return nil
	case node.Err() != nil:
		return node.Err()
	}
	return err
}

// acquire waits for the lock and tells meanwhile who has it.
func acquire(ctx context.Context, node *conclave.Node, lock *conclave.FencedLock, say teller) (conclave.Fence, error) {
	waiting, over := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { follow(waiting, node, lock, say) })
	fence, err := lock.Lock(ctx)
	over()
	telling.Wait()
	return fence, err
}

// follow tells who holds the lock whenever that has changed. It is for people:
// by the time that they read it somebody else may hold it.
func follow(ctx context.Context, node *conclave.Node, lock *conclave.FencedLock, say teller) {
	var last conclave.Fence
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		info, err := lock.Info(ctx)
		if err == nil && info.Held && info.Fence != last && info.Node != node.Status().ID {
			last = info.Fence
			say("waiting for %q: held by %s with fence %v", info.Name, nameOf(node, info.Node), info.Fence)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}
