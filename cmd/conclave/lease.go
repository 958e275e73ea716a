package main

import (
	"context"
	"strconv"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// lease is what a command runs under.
type lease struct {
	kind, name string
	fence      conclave.Fence
	held       func() bool // by this process's own clock
	lost       <-chan struct{}
	release    func(ctx context.Context) error
}

// environment is what the command learns of the lease. The fence is a decimal number, also when it is printed with an epoch:
// scripts compare it. The list is for resources that package fencing guards.
func (l lease) environment() []string {
	return []string{
		"CONCLAVE_FENCE=" + strconv.FormatUint(uint64(l.fence), 10), "CONCLAVE_LOCK=" + l.name,
		"CONCLAVE_FENCES=" + fencing.Token{Lock: l.name, Fence: l.fence}.String(),
	}
}

// parseFence parses a fence as the environment of a command has it, or as it is printed.
func parseFence(text string) (conclave.Fence, error) {
	if number, err := strconv.ParseUint(text, 10, 64); err == nil && number != 0 && text[0] != '0' {
		return conclave.Fence(number), nil
	}
	return conclave.ParseFence(text)
}

func lives(s *conclave.Session) func() bool { return func() bool { return s.Err() == nil } }

// takeLock acquires a lock.
func (o *tenancy) takeLock(ctx context.Context, s *conclave.Session, name string) (lease, error) {
	lock := s.FencedLock(name, conclave.WithLabel(o.label))
	acquire := lock.Lock
	if o.try {
		acquire = lock.TryLock
	}
	fence, err := acquire(ctx)
	return lease{"lock", name, fence, lives(s), lock.Lost(), lock.Unlock}, err
}

// takePermits acquires permits of a semaphore.
func (o *tenancy) takePermits(ctx context.Context, s *conclave.Session, name string) (lease, error) {
	semaphore := s.Semaphore(name, o.of)
	acquire := semaphore.Acquire
	if o.try {
		acquire = semaphore.TryAcquire
	}
	permit, err := acquire(ctx, o.permits)
	if err != nil {
		return lease{}, err
	}
	fence, err := permit.Fence()
	return lease{"semaphore", name, fence, lives(s), permit.Lost(), permit.Release}, err
}
