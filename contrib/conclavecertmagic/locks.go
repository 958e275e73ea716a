package conclavecertmagic

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/conclave-go/conclave"
)

// Lock implements [certmagic.Storage]. It blocks until the lock is granted or ctx is done. Waiters
// are served in FIFO order across the group; two callers in this process exclude each other too.
// The lock of a process that has died is free after the TTL of its session.
func (s *Storage) Lock(ctx context.Context, name string) error {
	lock := s.locks.FencedLock(s.prefix + name)
	if _, err := lock.Lock(ctx); err != nil {
		return fault("lock", name, err)
	}
	s.add(name, lock)
	return nil
}

// TryLock implements [certmagic.TryLocker]. It returns false without an error if another caller
// holds the lock, or its last holder's lock-delay has not passed.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	lock := s.locks.FencedLock(s.prefix + name)
	_, err := lock.TryLock(ctx)
	switch {
	case errors.Is(err, conclave.ErrLocked), errors.Is(err, conclave.ErrLockDelay):
		return false, nil
	case err != nil:
		return false, fault("try lock", name, err)
	}
	s.add(name, lock)
	return true, nil
}

// Unlock implements [certmagic.Storage]. It returns nil if the lock was lost or is not held: it is
// released then. If ctx is done first the release goes on in the background, and the error wraps
// ctx's and [conclave.ErrUnknown]; Unlock need not be called again.
//
// CertMagic identifies a hold by its name only. If this process has lost the lock and holds it
// again by another caller, the first Unlock counts for the lost hold: the lock is released by the
// second, so that the former holder cannot release what is not its own any more.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	lock := s.take(name)
	if lock == nil {
		return nil
	}
	err := lock.Unlock(ctx)
	if errors.Is(err, conclave.ErrLockOwnershipLost) {
		return nil
	}
	return fault("unlock", name, err)
}

// RenewLockLease implements [certmagic.LockLeaseRenewer]. The session is renewed without it, for as
// long as the process runs, so it only reports whether the lock is still held; CertMagic calls it
// before each attempt to obtain a certificate and gives up on an error. The error wraps
// [conclave.ErrLockOwnershipLost] or [conclave.ErrNotHeld]. It does not block.
func (s *Storage) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	_, err := s.Fence(name)
	return err
}

// Fence returns the fence under which this process holds the lock. It does not block and compares
// the clock with the lease. The errors are those of RenewLockLease.
func (s *Storage) Fence(name string) (conclave.Fence, error) {
	lock := s.latest(name)
	if lock == nil {
		return 0, fault("fence", name, conclave.ErrNotHeld)
	}
	f, err := lock.Fence()
	return f, fault("fence", name, err)
}

// Lost returns a channel that is closed when the lock is lost that this process holds, as
// [conclave.FencedLock.Lost]; nil if it holds none.
func (s *Storage) Lost(name string) <-chan struct{} {
	if lock := s.latest(name); lock != nil {
		return lock.Lost()
	}
	return nil
}

func (s *Storage) add(name string, lock *conclave.FencedLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds[name] = append(s.holds[name], lock)
}

// take removes a hold, a lost one if there is any.
func (s *Storage) take(name string) *conclave.FencedLock {
	s.mu.Lock()
	defer s.mu.Unlock()
	holds := s.holds[name]
	if len(holds) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(holds, isLost))
	lock := holds[i]
	if s.holds[name] = slices.Delete(holds, i, i+1); len(holds) == 1 {
		delete(s.holds, name)
	}
	return lock
}

// latest returns the hold that is not lost; if each is lost, one of these.
func (s *Storage) latest(name string) *conclave.FencedLock {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *conclave.FencedLock
	for _, lock := range s.holds[name] {
		if found == nil || isLost(found) {
			found = lock
		}
	}
	return found
}

func isLost(lock *conclave.FencedLock) bool {
	_, err := lock.Fence()
	return err != nil
}
