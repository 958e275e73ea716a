package conclave

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/clients"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// Sentinel errors. Every error of this package is an *Error that wraps one of
// these, a context's error, or both. Errors of the network, the file system or
// another member that Open meets, and the reason why a disk failed, are wrapped as
// they are.
var (
	// ErrLocked: another owner holds or waits for it. Retry later, or wait with Lock
	// or Acquire.
	ErrLocked = errors.New("locked")
	// ErrLockDelay: the last holder's session was invalidated, and its lock-delay
	// has not passed. Retry later, or wait with Lock or Acquire.
	ErrLockDelay = errors.New("in the lock-delay of its last holder")
	// ErrNotHeld: the caller does not hold what it wants to release or use.
	ErrNotHeld = errors.New("not held")
	// ErrLockOwnershipLost: the lock, the leadership or the permits were lost,
	// because the session ended or could not be renewed in time. Another owner may
	// hold them now. The handle works again once each Unlock owed, or Resign, was
	// called.
	ErrLockOwnershipLost = errors.New("lock ownership lost")
	// ErrShardMoved: the shard is to move to another process. It is the cause of the end of a context that [Shards.Run]
	// has made, and no call returns it. The work should stop and return; the next owner is granted the shard then.
	ErrShardMoved = errors.New("the shard is to move to another process")
	// ErrHoldExpired: the hold has lasted as long as its MaxHold allows. It is an
	// ErrLockOwnershipLost. The session lives on.
	ErrHoldExpired = fmt.Errorf("%w: the hold has reached its MaxHold", ErrLockOwnershipLost)
	// ErrDeadlock: the wait of a Lock or RLock would have closed a cycle of sessions that wait for each
	// other; see [RefuseDeadlock]. The error is a *DeadlockError, which has the cycle. No effect. Release what
	// another one waits for before the next Lock.
	ErrDeadlock = errors.New("the wait would close a cycle of sessions that wait for each other")
	// ErrJobDone: the key of a [Job] is closed, so Once does not run it: it has run to its end, its attempts are
	// used up, or it is older than the keys that are retained. The error is a *JobDoneError, which has the key's last run. No effect.
	ErrJobDone = errors.New("the key is closed")
	// ErrAcquireLimitReached: the handle holds the lock as often as its Reentrant
	// limit allows.
	ErrAcquireLimitReached = errors.New("reentrant limit reached")
	// ErrSessionExpired: the session has ended. What it held is released.
	ErrSessionExpired = errors.New("session has ended")
	// ErrSessionNotFound: the group has no such session.
	ErrSessionNotFound = errors.New("session not found")
	// ErrSessionBound: the session is bound to a live process, so it cannot be
	// attached. Retry when that process has ended.
	ErrSessionBound = errors.New("session is bound to a live process")
	// ErrCheckCritical: a check that the session would depend on is critical. Retry
	// when it passes, or choose other checks.
	ErrCheckCritical = errors.New("check is critical")
	// ErrStaleFence: a larger fence was seen before, so this one belongs to an
	// earlier holder.
	ErrStaleFence = errors.New("stale fence")
	// ErrStaleSequencer: the session no longer holds the key by the acquisition that
	// the sequencer names.
	ErrStaleSequencer = errors.New("stale sequencer")
	// ErrLimitMismatch: the semaphore is in use with another limit, or the set of shards with another count, which
	// the error names. Use that one, or change it for all users with Resize.
	ErrLimitMismatch = errors.New("in use with another limit")
	// ErrNoLimit: a handle with GroupLimit found no limit: no Resize has set one, and no
	// other user holds permits or waits. Call Resize.
	ErrNoLimit = errors.New("the semaphore has no limit")
	// ErrKeyNotFound: the key does not exist.
	ErrKeyNotFound = errors.New("key not found")
	// ErrCompareFailed: a comparison in a Txn failed; nothing was changed.
	ErrCompareFailed = errors.New("comparison failed")
	// ErrCompacted: the requested index has been compacted. Read the current state,
	// and watch from its index on.
	ErrCompacted = errors.New("requested index has been compacted")
	// ErrGroupNotFound: there is no such further group, or it has been deleted. No effect, unless it comes with ErrUnknown.
	ErrGroupNotFound = errors.New("group not found")
	// ErrNoLeader: the election has no leader.
	ErrNoLeader = errors.New("no leader")
	// ErrUnavailable: no quorum of the group could be reached, and nothing was
	// submitted: no effect. Worth a retry. A Backup is complete nevertheless, and may be
	// old.
	ErrUnavailable = errors.New("no quorum of the group is reachable")
	// ErrUnknown: the request was under way when the wait for it ended, with ctx or with
	// the node or client, whose error is wrapped as well. It may take effect.
	ErrUnknown = errors.New("outcome unknown")
	// ErrClosed: the node or the client is closed, or the node has stopped; Node.Err returns the
	// reason. No effect, unless it comes with ErrUnknown, as for a write that was under way.
	ErrClosed = errors.New("node is closed")
	// ErrIncomplete: a backup broke off, and what was written of it, if anything, is no
	// backup: discard it. The cause is wrapped as well. Worth a retry.
	ErrIncomplete = errors.New("the backup is incomplete")
	// ErrCorrupt: data on disk is damaged, or is not what this member acknowledged.
	ErrCorrupt = errors.New("data is corrupt")
	// ErrTooLarge: a limit is exceeded, and a retry cannot succeed. No effect.
	ErrTooLarge = errors.New("limit exceeded")
	// ErrBusy: a limit on what may be under way or in use at once is exceeded. No
	// effect; worth a retry when other calls, holders or waiters have finished. A
	// caller that retries must wait before: 100 ms or more, longer after each ErrBusy
	// up to seconds, with a random part. Callers that retry at once take the
	// processor from the calls that they wait for.
	ErrBusy = errors.New("busy")
	// ErrInvalid: an argument or a setting is invalid. No effect.
	ErrInvalid = errors.New("invalid")
	// ErrNotLeader: the member does not lead the group. Worth a retry.
	ErrNotLeader = errors.New("not the leader")
	// ErrLastVoter: the only voter of a group cannot leave it.
	ErrLastVoter = errors.New("last voter of the group")
	// ErrUpgradeRequired: a build is too old for what was asked: this one for the group, the
	// directory or the backup, or that of a member of the group for the call. No effect, and
	// nothing is lost: upgrade the build that the error names.
	ErrUpgradeRequired = errors.New("newer build required")
	// ErrRemoved: the member has been removed from its group, permanently.
	ErrRemoved = errors.New("member has been removed from the group")
)

// Error describes a failed operation. A context that was done before the call is
// wrapped alone, with neither ErrUnavailable nor ErrUnknown: nothing was submitted.
type Error struct {
	Op   string // "lock", "open", ...
	Name string // of the lock, session, key, directory, ...; may be empty
	Err  error
}

// Error returns "conclave: operation name: cause".
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("conclave: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("conclave: %s %s: %v", e.Op, quote(e.Name), e.Err)
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// quote keeps a name that is far longer than its limit out of logs.
func quote(name string) string {
	if len(name) > 2*machine.MaxName {
		return fmt.Sprintf("%q... (%d bytes)", name[:64], len(name))
	}
	return strconv.Quote(name)
}

// fault makes the *Error of an operation; nil stays nil.
func fault(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Name: name, Err: convert(err)}
}

// joined is errors.Join, except that a single error stays as it is.
func joined(err, other error) error {
	switch {
	case err == nil:
		return other
	case other == nil:
		return err
	}
	return errors.Join(err, other)
}

// convert turns the facts of the lower floors into the errors that are documented
// here.
func convert(err error) error {
	var (
		done       *Error
		f          *client.Fault
		incomplete *replica.IncompleteError
	)
	switch {
	case errors.As(err, &incomplete):
		return incompleteError{incompleteCause(incomplete.Cause)}
	case errors.As(err, &f): // before what its context may have ended with
	case errors.As(err, &done):
		return err // an application's function returned it to Run
	default:
		return convertMember(err)
	}
	return convertFault(f)
}

func convertFault(f *client.Fault) error {
	if f.Kind == client.Closed && errors.Is(f.Cause, remote.ErrClosed) {
		return clientClosed{}
	}
	if f.Kind == client.NoGroup || f.Kind == client.Closed && (errors.Is(f.Cause, cluster.ErrGroupDeleted) || errors.Is(f.Cause, remote.ErrDeleted)) {
		return ErrGroupNotFound
	}
	detail, cause := f.Detail, ownCause(f.Cause)
	converted := faultKind(f, cause)
	if f.Kind == client.Unavailable && cause != nil { // the detail ends with what to do
		converted, cause = fmt.Errorf("%w: %w", converted, convert(cause)), nil
	}
	if detail != "" {
		converted = fmt.Errorf("%w: %s", converted, detail)
	}
	if cause != nil && f.Kind != client.Interrupted {
		converted = fmt.Errorf("%w: %w", converted, convert(cause))
	}
	return converted
}

// ownCause keeps the errors of other calls of this package out of the cause of a fault, except for
// their text: a context ends with one if it is an errgroup's, and its ErrUnavailable would state
// that this call had no effect.
func ownCause(cause error) error {
	if !errors.As(cause, new(*Error)) {
		return cause
	}
	if joined, ok := cause.(interface{ Unwrap() []error }); ok { //nolint:errorlint // client.ContextError's
		return foreignCause{joined.Unwrap()[0], cause.Error()}
	}
	return errors.New(cause.Error())
}

// contextError is client.ContextError without the errors of other calls.
func contextError(ctx context.Context) error { return ownCause(client.ContextError(ctx)) }

// foreignCause is the error of a context, with a text of its own.
type foreignCause struct {
	error
	text string
}

func (e foreignCause) Error() string { return e.text }

func (e foreignCause) Unwrap() error { return e.error }

func faultKind(f *client.Fault, cause error) error {
	switch f.Kind {
	case client.Refused:
		return refusal(f.Reply)
	case client.Interrupted:
		if queued := describeWait(f.Reply); queued != "" {
			return fmt.Errorf("%w: %s", cause, queued)
		}
		return cause
	case client.Unavailable:
		return ErrUnavailable
	case client.Unknown:
		return ErrUnknown
	case client.NotHeld:
		return ErrNotHeld
	case client.Lost:
		if f.Overdue {
			return ErrHoldExpired
		}
		return ErrLockOwnershipLost
	case client.Expired:
		return ErrSessionExpired
	case client.Compacted:
		return ErrCompacted
	case client.ReadOnly:
		return errReadOnly
	case client.OtherMode, client.Endless:
		return ErrInvalid
	}
	return ErrClosed
}

// errReadOnly is the error of what a client with ReadOnly cannot do.
var errReadOnly = fmt.Errorf("%w: the client was dialed with ReadOnly, so it can read and nothing else: Dial another one", ErrInvalid)

// refusal turns a refusal by the state machine into an error.
func refusal(r *wire.Reply) error {
	switch r.GetCode() {
	case wire.Code_LOCKED:
		if holder := describeHolder(r); holder != "" {
			return fmt.Errorf("%w: %s", ErrLocked, holder)
		}
		if detail := r.GetDetail(); detail != "" {
			return fmt.Errorf("%w: %s", ErrLocked, detail)
		}
		return ErrLocked
	case wire.Code_DEADLOCK:
		return deadlock(r)
	case wire.Code_LIMIT_MISMATCH:
		return fmt.Errorf("%w: %d: use that one, or change it with Resize", ErrLimitMismatch, r.GetLimit())
	case wire.Code_STALE_FENCE:
		return fmt.Errorf("%w: the key was written with %v", ErrStaleFence, Fence(r.GetFence()))
	case wire.Code_LOCK_DELAY:
		return fmt.Errorf("%w: %v left", ErrLockDelay, duration(r.GetDelay()).Round(time.Millisecond))
	case wire.Code_CHECK_CRITICAL:
		return fmt.Errorf("%w: %q", ErrCheckCritical, r.GetDetail())
	case wire.Code_CHECK_UNKNOWN:
		return fmt.Errorf("%w: this member has no check %q: register it first", ErrInvalid, r.GetDetail())
	case wire.Code_TOO_LARGE:
		return fmt.Errorf("%w: %s", ErrTooLarge, r.GetDetail())
	case wire.Code_BUSY:
		return fmt.Errorf("%w: %s", ErrBusy, r.GetDetail())
	case wire.Code_LEVEL:
		return fmt.Errorf("%w: %s", ErrUpgradeRequired, r.GetDetail())
	case wire.Code_STALE_BOOT:
		return fmt.Errorf("%w: the group knows a later start of this member, so its directory is a copy or was rolled back: stop this process and continue with the original directory", ErrCorrupt)
	}
	if err, ok := refusals[r.GetCode()]; ok {
		return err
	}
	return fmt.Errorf("%w: %s", ErrInvalid, strings.TrimPrefix(fmt.Sprint(r.GetCode(), " ", r.GetDetail()), "INVALID "))
}

// refusals are the codes whose error says it all.
var refusals = map[wire.Code]error{
	wire.Code_COMPARE_FAILED:      ErrCompareFailed,
	wire.Code_JOB_DONE:            ErrJobDone,
	wire.Code_STALE_SEQUENCER:     ErrStaleSequencer,
	wire.Code_NOT_HELD:            ErrNotHeld,
	wire.Code_OWNERSHIP_LOST:      ErrLockOwnershipLost,
	wire.Code_LIMIT_REACHED:       ErrAcquireLimitReached,
	wire.Code_SESSION_EXPIRED:     ErrSessionExpired,
	wire.Code_UNKNOWN_INCARNATION: ErrSessionExpired,
	wire.Code_SESSION_BOUND:       ErrSessionBound,
	wire.Code_REMOVED:             ErrRemoved,
	wire.Code_GROUP_DELETED:       ErrGroupNotFound,
}

// convertMember turns the errors of the member in this process into those that are
// documented here. That of one that has stopped has its reason as well.
func convertMember(err error) error {
	if errors.Is(err, cluster.ErrStopped) {
		return fmt.Errorf("%w (%w)", ErrClosed, convertFact(err))
	}
	return convertFact(err)
}

func convertFact(err error) error {
	mark := func(sentinel error) error { return fmt.Errorf("%w: %w", sentinel, err) }
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrRemoved):
		return mark(ErrRemoved)
	case errors.Is(err, cluster.ErrGroupDeleted):
		return ErrGroupNotFound
	case errors.Is(err, cluster.ErrLastVoter):
		return mark(ErrLastVoter)
	case errors.Is(err, machine.ErrLastEpoch), errors.Is(err, machine.ErrAnswerTooLarge), errors.Is(err, clients.ErrTooLarge):
		return mark(ErrTooLarge)
	case errors.Is(err, machine.ErrQuery):
		return mark(ErrInvalid)
	case errors.Is(err, cluster.ErrNoGroup), errors.Is(err, cluster.ErrNotEmpty), errors.Is(err, cluster.ErrUnfinished):
		return mark(ErrInvalid)
	case errors.Is(err, cluster.ErrNoQuorumWithout), errors.Is(err, cluster.ErrUnconfirmed):
		return mark(ErrUnavailable)
	case errors.Is(err, cluster.ErrNotLeader):
		return mark(ErrNotLeader)
	case errors.Is(err, cluster.ErrUpgradeRequired), errors.Is(err, storage.ErrNewer), errors.Is(err, machine.ErrNewer):
		return mark(ErrUpgradeRequired)
	case errors.Is(err, storage.ErrCorrupt):
		return corruptError{err}
	case errors.Is(err, machine.ErrCorrupt), errors.Is(err, cluster.ErrCorrupt), errors.Is(err, cluster.ErrForgot):
		return mark(ErrCorrupt)
	}
	return convertRemote(err)
}

// clientClosed is the ErrClosed of a Client, which is no node.
type clientClosed struct{}

func (clientClosed) Error() string { return "client is closed" }

func (clientClosed) Unwrap() error { return ErrClosed }

// incompleteCause returns the cause of an ErrIncomplete. If the writer has returned an error of this
// package, only its text is kept: of a backup that error would state something else, such as
// ErrUnavailable that it is complete.
func incompleteCause(err error) error {
	if errors.As(err, new(*Error)) {
		return errors.New(err.Error())
	}
	for _, misleading := range []error{ErrUnavailable, ErrBusy, ErrUnknown, ErrClosed, ErrCorrupt, ErrUpgradeRequired} {
		if errors.Is(err, misleading) {
			return errors.New(err.Error())
		}
	}
	return convertMember(err)
}

// incompleteError is an ErrIncomplete with its cause.
type incompleteError struct{ cause error }

func (e incompleteError) Error() string {
	return fmt.Sprintf("%v: it broke off: %v", ErrIncomplete, e.cause)
}

func (e incompleteError) Unwrap() []error { return []error{ErrIncomplete, e.cause} }

// corruptError is an ErrCorrupt whose text already says so.
type corruptError struct{ error }

func (e corruptError) Unwrap() []error { return []error{ErrCorrupt, e.error} }
