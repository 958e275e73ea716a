package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// campaign acquires the lock, holds it until it is lost, and starts over, until
// ctx is done or the node stops. It returns nil if ctx ended it or an operator
// had the member leave, or else why the node stopped.
func campaign(ctx context.Context, node *conclave.Node, name string, logf logFunc) error {
	if name == "" { // only a member of the group
		select {
		case <-node.Done():
		case <-ctx.Done():
		}
		return reason(ctx, node, nil)
	}
	lock := node.FencedLock(name)
	for {
		fence, err := acquire(ctx, node, lock, logf)
		if errors.Is(err, conclave.ErrSessionExpired) {
			logf("the session ended while waiting (%v); queueing again", err)
			continue
		}
		if err != nil {
			return reason(ctx, node, err)
		}
		logf("HOLDER of %q with fence %v", name, fence)
		logf("to crash this holder, run: %s", killCommand())

		// The work goes here, with the fence in each request to the resource that
		// the lock protects. FencedLock.Do does all of this in one call.
		select {
		case <-lock.Lost():
			logf("LOST %q, fence %v: another member may hold it now", name, fence)
			// A lost hold is still owed its Unlock; then the handle is usable again.
			if err := lock.Unlock(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
				return reason(ctx, node, err)
			}
		case <-ctx.Done():
			return nil // Close releases the lock
		}
		if node.Err() != nil {
			return reason(ctx, node, nil)
		}
	}
}

// reason returns nil if ctx is done or the member has left, the node's error if
// the node has stopped by itself, and err otherwise.
func reason(ctx context.Context, node *conclave.Node, err error) error {
	if errors.Is(err, conclave.ErrClosed) {
		<-node.Done() // a call may fail before the node has stopped
	}
	switch {
	case ctx.Err() != nil, errors.Is(node.Err(), conclave.ErrClosed):
		return nil
	case node.Err() != nil:
		return node.Err()
	}
	return err
}

// acquire acquires the lock and prints the present holder while it waits.
func acquire(ctx context.Context, node *conclave.Node, lock *conclave.FencedLock, logf logFunc) (conclave.Fence, error) {
	waiting, granted := context.WithCancel(ctx)
	var printing sync.WaitGroup
	printing.Go(func() { printHolder(waiting, node, lock, logf) })
	fence, err := lock.Lock(ctx)
	granted()
	printing.Wait()
	return fence, err
}

// printHolder prints each new holder of the lock until ctx is done. What it
// prints may be out of date by then; only the fence is safe to act on.
func printHolder(ctx context.Context, node *conclave.Node, lock *conclave.FencedLock, logf logFunc) {
	var last conclave.Fence
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		info, err := lock.Info(ctx)
		if err == nil && info.Held && info.Fence != last && info.Node != node.Status().ID {
			last = info.Fence
			logf("waiting for %q: held by %s with fence %v", info.Name, nameOf(node, info.Node), info.Fence)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}
