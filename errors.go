package conclave

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// What can be the matter. Every error of this package is an *Error. It wraps one
// of these, a context's error, or both; what the network, the file system or
// another member said while a node was being opened, and why a disk failed, is
// passed on as it is.
var (
	// ErrLocked: somebody else holds what is asked for, or waits for it. Try again
	// later, or wait with Lock or Acquire.
	ErrLocked = errors.New("locked by another owner")
	// ErrLockDelay: the last holder's session was invalidated, and its lock-delay has not passed.
	ErrLockDelay = errors.New("in the lock-delay of its last holder")
	// ErrNotHeld: it is not held by who would give it back or use it.
	ErrNotHeld = errors.New("not held")
	// ErrLockOwnershipLost: the lock, the lead or the permits were held and lost,
	// because the session ended or could not be renewed in time. What they protect
	// may be in other hands. The handle works again once each Unlock owed, or
	// Resign, was called.
	ErrLockOwnershipLost = errors.New("the lock's ownership was lost")
	// ErrAcquireLimitReached: the handle holds the lock as many times as its Reentrant limit allows.
	ErrAcquireLimitReached = errors.New("the reentrant limit is reached")
	// ErrSessionExpired: the session has ended. What was held by it is released.
	ErrSessionExpired = errors.New("the session has ended")
	// ErrSessionNotFound: there is no such session.
	ErrSessionNotFound = errors.New("no such session")
	// ErrCheckCritical: a check that the session would depend on is critical.
	// Choose other checks, or wait until it passes.
	ErrCheckCritical = errors.New("a check is critical")
	// ErrStaleFence: a larger fence was seen before, so this one belongs to a former holder.
	ErrStaleFence = errors.New("stale fence")
	// ErrLimitMismatch: the semaphore is used with another limit, which the error
	// names. Use that one, or change it for everybody with Resize.
	ErrLimitMismatch = errors.New("the semaphore has another limit")
	// ErrKeyNotFound: there is no such key.
	ErrKeyNotFound = errors.New("no such key")
	// ErrCompareFailed: a comparison in a Txn did not hold; nothing was done.
	ErrCompareFailed = errors.New("a comparison did not hold")
	// ErrCompacted: changes that were asked for are not remembered any more.
	// Read the present state, and watch from its index on.
	ErrCompacted = errors.New("the changes asked for are not remembered any more")
	// ErrNoLeader: nobody leads the election.
	ErrNoLeader = errors.New("nobody leads")
	// ErrUnavailable: no majority of the group could be reached, and nothing was queued: no effect.
	ErrUnavailable = errors.New("no majority of the group can be reached")
	// ErrUnknown: the request was under way when the wait for it ended. It may take effect.
	ErrUnknown = errors.New("the outcome is not known")
	// ErrClosed: the node is closed or has stopped; Node.Err says why.
	ErrClosed = errors.New("the node is closed")
	// ErrCorrupt: data on disk is damaged, or is not what this member had acknowledged.
	ErrCorrupt = errors.New("data is damaged")
	// ErrTooLarge: a limit is passed; nothing was done.
	ErrTooLarge = errors.New("over a limit")
	// ErrInvalid: an argument or a setting makes no sense; nothing was done.
	ErrInvalid = errors.New("invalid")
)

// Error says what was being done to what, and what was the matter. A context
// that had ended before the call is passed on alone, with neither ErrUnavailable
// nor ErrUnknown: nobody was asked.
type Error struct {
	Op   string // "lock", "open", ...
	Name string // of the lock, session, key, directory, ...; may be empty
	Err  error
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("conclave: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("conclave: %s %s: %v", e.Op, quote(e.Name), e.Err)
}

// quote keeps a name that is far over its limit out of logs.
func quote(name string) string {
	if len(name) > 2*machine.MaxName {
		return fmt.Sprintf("%q... (%d bytes)", name[:64], len(name))
	}
	return strconv.Quote(name)
}

func (e *Error) Unwrap() error { return e.Err }

// fault makes the *Error of an operation; nil stays nil.
func fault(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Name: name, Err: err}
}

// because joins what was the matter with the context's error, so that both are found.
func because(what error, ctx context.Context) error { return fmt.Errorf("%w: %w", what, ended(ctx)) }

// ended is the error of a context that has ended, and its cause if it has one; nil
// is that it has not.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w (%w)", ctx.Err(), cause)
	}
	return ctx.Err()
}

// refusal turns a fact of the machine into an error; nil is no refusal.
func refusal(r *wire.Reply) error {
	switch r.GetCode() {
	case wire.Code_OK, wire.Code_QUEUED:
		return nil
	case wire.Code_LOCKED:
		return ErrLocked
	case wire.Code_LIMIT_MISMATCH:
		return fmt.Errorf("%w: %d", ErrLimitMismatch, r.GetLimit())
	case wire.Code_STALE_FENCE:
		return fmt.Errorf("%w: it was written with %v", ErrStaleFence, Fence(r.GetFence()))
	case wire.Code_COMPARE_FAILED:
		return ErrCompareFailed
	case wire.Code_CHECK_CRITICAL:
		return ErrCheckCritical
	case wire.Code_CHECK_UNKNOWN:
		return fmt.Errorf("%w: this member has no such check; register it first", ErrInvalid)
	case wire.Code_LOCK_DELAY:
		return fmt.Errorf("%w: %v left", ErrLockDelay, duration(r.GetDelay()))
	case wire.Code_NOT_HELD:
		return ErrNotHeld
	case wire.Code_OWNERSHIP_LOST:
		return ErrLockOwnershipLost
	case wire.Code_LIMIT_REACHED:
		return ErrAcquireLimitReached
	case wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION:
		return ErrSessionExpired
	case wire.Code_TOO_LARGE:
		return fmt.Errorf("%w: %s", ErrTooLarge, r.GetDetail())
	case wire.Code_LEFT:
		return fmt.Errorf("%w: this member has left the group for good; start with an empty directory, as a new member", ErrInvalid)
	case wire.Code_STALE_BOOT:
		return fmt.Errorf("%w: the group knows a later start of this member: its directory is a copy, or was rolled back; "+
			"stop the other copy, or start this one with an empty directory", ErrCorrupt)
	}
	return fmt.Errorf("%w: %s %s", ErrInvalid, r.GetCode(), r.GetDetail())
}

// ours turns an error of the floors below into one that is documented here.
func ours(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrRemoved), errors.Is(err, cluster.ErrLastVoter):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, cluster.ErrNoQuorumWithout):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case errors.Is(err, cluster.ErrStopped):
		return fmt.Errorf("%w (%w)", ErrClosed, err)
	case errors.Is(err, cluster.ErrBusy):
		return fmt.Errorf("%w: %w; wait for some to end", ErrTooLarge, err)
	case errors.Is(err, cluster.ErrUnregistered):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case errors.Is(err, storage.ErrCorrupt), errors.Is(err, machine.ErrCorrupt), errors.Is(err, cluster.ErrCorrupt):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}
