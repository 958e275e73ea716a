package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// lease is what a command runs under.
type lease struct {
	kind, name string // of the grant with the largest fence
	fence      conclave.Fence
	fences     []fencing.Token // of all grants
	session    conclave.SessionID
	held       func() bool     // by this process's own clock
	lost       <-chan struct{} // any of the grants
	release    func(ctx context.Context) error
	slots      []int                     // the numbers of permits
	more       []string                  // of the environment
	ended      func(code int, err error) // gets how the command ended, before the release; nil: that does not matter
}

// fencesAtMost is how many fences package fencing puts into one header.
const fencesAtMost = 16

// grant is a part of a lease: one lock or more, which are released and lost together.
type grant struct {
	tokens  []fencing.Token
	lost    <-chan struct{}
	release func(ctx context.Context) error
	fence   func() (conclave.Fence, error) // by this process's own clock; nil: the grant is held as long as the session
}

// leaseOf is the lease that consists of what was granted under a session, in this order. The loss of any is that of all.
func leaseOf(kind string, s *conclave.Session, grants ...grant) lease {
	lost, released := make(chan struct{}), make(chan struct{})
	l := lease{kind: kind, session: s.ID(), lost: lost}
	l.held = func() bool {
		return s.Err() == nil && !slices.ContainsFunc(grants, func(g grant) bool {
			if g.fence == nil {
				return false
			}
			_, err := g.fence()
			return err != nil
		})
	}
	var once sync.Once
	for _, g := range grants {
		for _, t := range g.tokens {
			if t.Fence >= l.fence {
				l.name, l.fence = t.Lock, t.Fence
			}
		}
		l.fences = append(l.fences, g.tokens...)
		go func() {
			select {
			case <-g.lost:
				once.Do(func() { close(lost) })
			case <-released:
			}
		}()
	}
	l.release = func(ctx context.Context) error {
		close(released)
		var faults []error
		for _, g := range slices.Backward(grants) {
			faults = append(faults, g.release(ctx))
		}
		return errors.Join(faults...)
	}
	return l
}

// String names what is held, with fences.
func (l lease) String() string {
	if len(l.fences) > 1 {
		return fmt.Sprintf("%ss %s", l.kind, l.header())
	}
	return fmt.Sprintf("%s %q with fence %s", l.kind, l.name, l.fence)
}

// header is the fences as package fencing sends them.
func (l lease) header() string {
	text, _ := fencing.Format(l.fences...) // they are granted, of different names, and not too many
	return text
}

// environment is what the command learns of the lease. The fence is a decimal number, also when it is printed with an epoch:
// scripts compare it. The list is for resources that package fencing guards.
func (l lease) environment() []string {
	return append([]string{
		"CONCLAVE_FENCE=" + strconv.FormatUint(uint64(l.fence), 10), "CONCLAVE_LOCK=" + l.name, "CONCLAVE_FENCES=" + l.header(),
		sessionVariable + "=" + l.session.String(), "CONCLAVE_SLOTS=" + strings.Trim(strings.ReplaceAll(fmt.Sprint(l.slots), " ", ","), "[]"),
	}, l.more...)
}

// parseFence parses a fence as the environment of a command has it, or as it is printed.
func parseFence(text string) (conclave.Fence, error) {
	if number, err := strconv.ParseUint(text, 10, 64); err == nil && number != 0 && text[0] != '0' {
		return conclave.Fence(number), nil
	}
	return conclave.ParseFence(text)
}

// takeLocks acquires locks. Several are a set, so that they are held together or not at all.
func (o *tenancy) takeLocks(ctx context.Context, s *conclave.Session, names []string) (lease, error) {
	if len(names) == 1 {
		return o.oneByOne(ctx, s, names)
	}
	l, err := o.takeSet(ctx, s, names)
	if errors.Is(err, conclave.ErrUpgradeRequired) { // the group knows no sets yet
		return o.oneByOne(ctx, s, names)
	}
	return l, err
}

func (o *tenancy) lockOptions() []conclave.LockOption {
	opts := []conclave.LockOption{conclave.WithLabel(o.label), conclave.MaxHold(o.maxHold)}
	if o.refuseDeadlock {
		opts = append(opts, conclave.RefuseDeadlock())
	}
	return opts
}

// takeSet acquires several locks as a whole.
func (o *tenancy) takeSet(ctx context.Context, s *conclave.Session, names []string) (lease, error) {
	exclusive, opts := names, o.lockOptions()
	if o.shared {
		exclusive, opts = nil, append(opts, conclave.Shared(names...))
	}
	set := s.LockSet(exclusive, opts...)
	acquire := set.Lock
	if o.try {
		acquire = set.TryLock
	}
	if _, err := acquire(ctx); err != nil {
		return lease{}, err
	}
	g := grant{lost: set.Lost(), release: set.Unlock, fence: set.Fence}
	for _, name := range names {
		fence, err := set.FenceOf(name)
		if err != nil {
			return lease{}, err
		}
		g.tokens = append(g.tokens, fencing.Token{Lock: name, Fence: fence})
	}
	return leaseOf("lock", s, g), nil
}

// oneByOne acquires locks in the order of their names: commands that do so cannot wait for each other in a cycle.
// After an error those that are held yet are released with the session.
func (o *tenancy) oneByOne(ctx context.Context, s *conclave.Session, names []string) (lease, error) {
	var grants []grant
	for _, name := range names {
		lock := s.RWLock(name, o.lockOptions()...)
		acquire, release := lock.Lock, lock.Unlock
		switch {
		case o.shared && o.try:
			acquire, release = lock.TryRLock, lock.RUnlock
		case o.shared:
			acquire, release = lock.RLock, lock.RUnlock
		case o.try:
			acquire = lock.TryLock
		}
		fence, err := acquire(ctx)
		if err != nil {
			return lease{}, err
		}
		grants = append(grants, grant{[]fencing.Token{{Lock: name, Fence: fence}}, lock.Lost(), release, lock.Fence})
	}
	return leaseOf("lock", s, grants...), nil
}

// takePermits acquires permits of a semaphore.
func (o *tenancy) takePermits(ctx context.Context, s *conclave.Session, name string) (lease, error) {
	semaphore := s.Semaphore(name, o.of).WithMaxHold(o.maxHold)
	acquire := semaphore.Acquire
	if o.try {
		acquire = semaphore.TryAcquire
	}
	permit, err := acquire(ctx, o.permits)
	if err != nil {
		return lease{}, err
	}
	fence, err := permit.Fence()
	if err != nil {
		return lease{}, err
	}
	l := leaseOf("semaphore", s, grant{[]fencing.Token{{Lock: name, Fence: fence}}, permit.Lost(), permit.Release, permit.Fence})
	l.slots = permit.Slots()
	return l, nil
}
