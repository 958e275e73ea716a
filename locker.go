package conclave

import (
	"context"
	"sync"
)

// Locker returns the lock as a sync.Locker. Where a sync.Mutex could not fail it
// panics with an *Error: Lock if ctx is done or the lock cannot be acquired, Unlock if
// it is not held or was lost. Unlock waits for the release even if ctx is done.
func (l *FencedLock) Locker(ctx context.Context) sync.Locker { return locker{l.Lock, l.Unlock, ctx} }

type locker struct {
	lock   func(context.Context) (Fence, error)
	unlock func(context.Context) error
	ctx    context.Context
}

func (l locker) Lock() {
	if _, err := l.lock(l.ctx); err != nil {
		panic(err)
	}
}

func (l locker) Unlock() {
	// As with a sync.Mutex, the lock is free when Unlock returns; the wait ends at
	// the session's deadline if it has one.
	if err := l.unlock(context.WithoutCancel(l.ctx)); err != nil {
		panic(err)
	}
}
