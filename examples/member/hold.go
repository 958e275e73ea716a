package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// hold acquires the lock, holds it until it is lost, and starts over, until ctx is
// done or the node has stopped. It returns nil if ctx ended it.
func hold(ctx context.Context, node *conclave.Node, name string, out *log.Logger) error {
	lock := node.FencedLock(name, conclave.WithLabel(node.Status().Name))
	for {
		fence, err := acquire(ctx, node, lock, out)
		switch {
		case ctx.Err() != nil:
			return nil // Close releases what was granted
		case errors.Is(err, conclave.ErrSessionExpired):
			out.Printf("the session ended while waiting (%v); queueing again", err)
			continue
		case err != nil:
			return cmp.Or(node.Err(), err)
		}
		out.Printf("HOLDER of %q with fence %v", name, fence)
		kill := "kill -9"
		if runtime.GOOS == "windows" {
			kill = "taskkill /F /PID"
		}
		out.Printf("to crash this holder, run: %s %d", kill, os.Getpid())

		// The work goes here, with the fence in each request to the resource that the
		// lock protects. FencedLock.Do does all of this in one call.
		select {
		case <-lock.Lost():
			out.Printf("LOST %q, fence %v: another member may hold it now", name, fence)
			_ = lock.Unlock(ctx) // ErrLockOwnershipLost; then the handle is usable again
		case <-ctx.Done():
			return nil
		}
	}
}

// acquire acquires the lock and prints the present holder while it waits.
func acquire(ctx context.Context, node *conclave.Node, lock *conclave.FencedLock, out *log.Logger) (conclave.Fence, error) {
	waiting, granted := context.WithCancel(ctx)
	var printing sync.WaitGroup
	printing.Go(func() { printHolder(waiting, node, lock, out) })
	fence, err := lock.Lock(ctx)
	granted()
	printing.Wait()
	return fence, err
}

// printHolder prints each new holder of the lock until ctx is done. What it
// prints may be out of date by then; only the fence is safe to act on.
func printHolder(ctx context.Context, node *conclave.Node, lock *conclave.FencedLock, out *log.Logger) {
	for last := conclave.Fence(0); ; {
		info, err := lock.Info(ctx)
		if err == nil && info.Held && info.Fence != last && info.Node != node.Status().ID {
			last = info.Fence
			out.Printf("waiting for %q: held by %s (member %v) with fence %v", info.Name, info.Label, info.Node, info.Fence)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}
