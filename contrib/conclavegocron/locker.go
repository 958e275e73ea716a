package conclavegocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/conclave-go/conclave"
)

// Option configures a Locker.
type Option interface{ apply(*Locker) }

type option func(*Locker)

func (f option) apply(l *Locker) { f(l) }

// Prefix sets what precedes the name of a job in the name of its lock. Programs that share a
// group need different ones, unless they share jobs. Default: "gocron/".
func Prefix(p string) Option { return option(func(l *Locker) { l.prefix = p }) }

// HoldFor keeps each lock for at least d from its grant, even if the run is shorter, so that a
// scheduler whose clock is behind, or that was delayed, is refused the same run. Choose more than
// the clocks differ by and less than the time between two runs. The lock is released earlier
// if the session ends, as when the process shuts down. Default: 0, which releases it after the run.
// At least 1 ms otherwise; Lock refuses what is less with [conclave.ErrInvalid].
func HoldFor(d time.Duration) Option {
	return option(func(l *Locker) { l.holdFor, l.bad = d, errors.Join(l.bad, leastDuration("HoldFor", d, true)) })
}

// Timeout bounds the wait for the group's decision about a run, which takes milliseconds if the
// group has a quorum. After that the run is skipped. At least 1 ms; Lock refuses what is less with
// [conclave.ErrInvalid]. Default: 10 s.
func Timeout(d time.Duration) Option {
	return option(func(l *Locker) { l.timeout, l.bad = d, errors.Join(l.bad, leastDuration("Timeout", d, false)) })
}

// leastDuration refuses a duration that lacks its unit.
func leastDuration(option string, d time.Duration, zero bool) error {
	if d >= time.Millisecond || d == 0 && zero {
		return nil
	}
	return fmt.Errorf("%w %s: want at least %v, got %v", conclave.ErrInvalid, option, time.Millisecond, d)
}

// Locker implements [gocron.Locker]: a job runs in the process that is the first to take its
// lock, and is skipped in the others. All methods are safe for concurrent use. A Locker has
// nothing to close.
//
// The lock of a process that dies is free after the TTL of its session, or, with a
// [conclave.Session], after the lock-delay as well.
type Locker struct {
	locks   conclave.Locks
	prefix  string
	holdFor time.Duration
	timeout time.Duration
	bad     error // what is wrong with the options

	mu    sync.Mutex
	holds map[string]*hold // guarded by mu; by the job's name
}

// NewLocker returns a Locker for [gocron.WithDistributedLocker] or
// [gocron.WithDistributedJobLocker].
func NewLocker(locks conclave.Locks, opts ...Option) *Locker {
	l := &Locker{locks: locks, prefix: "gocron/", timeout: 10 * time.Second, holds: make(map[string]*hold)}
	for _, opt := range opts {
		opt.apply(l)
	}
	return l
}

// Lock implements [gocron.Locker]. key is the name of the job. It does not wait for another
// holder: the error then wraps [conclave.ErrLocked], or [conclave.ErrLockDelay]. The other errors
// are those of [conclave.FencedLock.TryLock]. gocron passes them to [gocron.AfterLockError].
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	if l.bad != nil {
		return nil, fmt.Errorf("conclavegocron: lock for job %q: %w", key, l.bad)
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	lock := l.locks.FencedLock(l.prefix + key)
	fence, err := lock.TryLock(ctx)
	if err != nil {
		return nil, fmt.Errorf("conclavegocron: lock for job %q: %w", key, err)
	}
	h := newHold(lock, fence)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds[key] = h
	return &run{locker: l, key: key, hold: h, until: time.Now().Add(l.holdFor)}, nil
}

// Task wraps the function of the job with that name, for [gocron.NewTask]. The context that f
// receives carries the fence of the run, and is cancelled when the scheduler is shut down,
// and, with the cause [conclave.ErrLockOwnershipLost], when the lock is lost; the task then
// fails with that error as well.
//
// If this Locker holds no lock for the job, f is not called and the task fails with
// [conclave.ErrNotHeld]: the name differs from that of the job ([gocron.WithName]), or the
// scheduler has another locker or an elector. If a function runs already under the lock that it
// holds, the task fails with [conclave.ErrLocked]: gocron passes nothing by which Task could know its
// run, and this one may have lost its lock to that one before f was called.
func (l *Locker) Task(name string, f func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		l.mu.Lock()
		h := l.holds[name]
		l.mu.Unlock()
		if h == nil {
			return fmt.Errorf("conclavegocron: run job %q: %w: give the job this name and its scheduler this locker", name, conclave.ErrNotHeld)
		}
		if !h.busy.CompareAndSwap(false, true) {
			return fmt.Errorf("conclavegocron: run job %q: %w: another run of this process has it", name, conclave.ErrLocked)
		}
		defer h.busy.Store(false)
		if err := h.run(ctx, f); err != nil {
			return fmt.Errorf("conclavegocron: run job %q: %w", name, err)
		}
		return nil
	}
}

// remove forgets a hold, unless that of a later run has replaced it.
func (l *Locker) remove(key string, h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds[key] == h {
		delete(l.holds, key)
	}
}

// run is a lock for one run of a job.
type run struct {
	locker *Locker
	key    string
	hold   *hold
	until  time.Time
}

// Unlock implements [gocron.Lock]. The lock counts as released whatever Unlock returns; gocron
// ignores the error.
func (r *run) Unlock(ctx context.Context) error {
	r.hold.end(nil)
	r.locker.remove(r.key, r.hold)
	left := time.Until(r.until)
	if left <= 0 {
		return r.hold.lock.Unlock(ctx)
	}
	time.AfterFunc(left, func() { // on a goroutine of its own
		// With a context that is done the release would count as a call whose outcome is unknown.
		ctx, cancel := context.WithTimeout(context.Background(), r.locker.timeout)
		defer cancel()
		_ = r.hold.lock.Unlock(ctx)
	})
	return nil
}
