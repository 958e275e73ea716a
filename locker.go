package conclave

import (
	"context"
	"errors"
	"sync"
)

// Do runs f while it holds the lock. The context that f gets ends when ctx does,
// and, with the cause ErrLockOwnershipLost, when the lock is lost; f should then
// stop and must not touch what the lock protects. Do returns the errors of Lock
// if f was not run; otherwise f's error, joined with ErrLockOwnershipLost if the
// lock was lost meanwhile. The release is waited for even when ctx has ended, at
// most until the session's deadline if it has one.
func (l *FencedLock) Do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	if _, err := l.Lock(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Unlock(context.WithoutCancel(ctx))) }()
	guarded, stop := guard(ctx, l.Lost())
	defer stop()
	return f(guarded)
}

// Locker returns the lock as a sync.Locker. Where a sync.Mutex could not fail,
// it panics with an *Error: in Lock when ctx ends or the lock cannot be had, in
// Unlock when it is not held or was lost. Unlock waits for the release also when
// ctx has ended.
func (l *FencedLock) Locker(ctx context.Context) sync.Locker { return locker{l, ctx} }

type locker struct {
	lock *FencedLock
	ctx  context.Context
}

func (l locker) Lock() {
	if _, err := l.lock.Lock(l.ctx); err != nil {
		panic(err)
	}
}

func (l locker) Unlock() {
	// The release is waited for, as it is by who unlocks a sync.Mutex; at most
	// until the session's deadline if it has one.
	if err := l.lock.Unlock(context.WithoutCancel(l.ctx)); err != nil {
		panic(err)
	}
}
