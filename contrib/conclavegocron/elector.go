package conclavegocron

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/conclave-go/conclave"
)

// Elector implements [gocron.Elector]: the jobs of all schedulers run in the process that leads,
// and are skipped in the others. All methods are safe for concurrent use.
//
// An Elector leads by a [conclave.FencedLock] rather than a [conclave.Election]: gocron asks before
// each run, and [conclave.FencedLock.Fence] compares the clock with the lease, so a process that
// was paused and has resumed is refused.
type Elector struct {
	lock *conclave.FencedLock

	mu   sync.Mutex
	hold *hold // guarded by mu; nil: not the leader
}

// NewElector returns an Elector for [gocron.WithDistributedElector]. name is that of the lock
// for which the processes compete. It leads while [Elector.Run] runs.
func NewElector(locks conclave.Locks, name string, opts ...conclave.LockOption) *Elector {
	return &Elector{lock: locks.FencedLock(name, opts...)}
}

// Run competes for leadership, leads, and competes again after a loss, until ctx is done; then it
// releases leadership and returns ctx's error. It must not be called again before it has
// returned. Shut the scheduler down before: the runs of jobs that go on do so beside those of the
// next leader.
//
// The other errors are those of [conclave.FencedLock.Lock]: ErrClosed when the node was closed,
// ErrSessionExpired for a [conclave.Session] that has ended, ErrBusy, which is worth a retry.
func (e *Elector) Run(ctx context.Context) error {
	for {
		fence, err := e.lock.Lock(ctx)
		if err == nil {
			err = e.lead(ctx, fence)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, conclave.ErrLockOwnershipLost) {
			return fmt.Errorf("conclavegocron: elect: %w", err)
		}
	}
}

// lead is the time from a grant to its loss or release.
func (e *Elector) lead(ctx context.Context, fence conclave.Fence) error {
	h := newHold(e.lock, fence)
	e.set(h)
	select {
	case <-h.over.Done():
	case <-ctx.Done():
	}
	e.set(nil)
	h.end(context.Cause(ctx))
	return e.lock.Unlock(context.WithoutCancel(ctx))
}

func (e *Elector) set(h *hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold = h
}

func (e *Elector) current() *hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hold
}

// IsLeader implements [gocron.Elector]. It returns nil if this process leads. Otherwise the error
// wraps [conclave.ErrNotHeld], or [conclave.ErrLockOwnershipLost]. It does not block and needs no
// network.
func (e *Elector) IsLeader(context.Context) error {
	_, err := e.Fence()
	return err
}

// Fence returns the fence of the leadership of this process. Its errors are those of IsLeader.
func (e *Elector) Fence() (conclave.Fence, error) {
	if e.current() == nil {
		return 0, errNotLeader()
	}
	f, err := e.lock.Fence()
	if err != nil {
		return 0, fmt.Errorf("conclavegocron: not the leader: %w", err)
	}
	return f, nil
}

func errNotLeader() error {
	return fmt.Errorf("conclavegocron: not the leader: %w", conclave.ErrNotHeld)
}

// Task wraps the function of a job for [gocron.NewTask]. The context that f receives carries the
// fence of the leadership. It is cancelled when the scheduler is shut down, when Run releases
// leadership, and, with the cause [conclave.ErrLockOwnershipLost], when leadership is lost; the
// task then fails with that error as well. If the process does not lead, f is not called and the
// task fails with the error of IsLeader.
func (e *Elector) Task(f func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		h := e.current()
		if h == nil {
			return errNotLeader()
		}
		return h.run(ctx, f)
	}
}
