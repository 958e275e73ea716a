package conclave

import (
	"context"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Election is a handle to an election of the group: of all who campaign one
// leads, and everybody can see who, with the value that it has proclaimed.
//
// A handle is one candidate: goroutines that share one wait for each other like
// two candidates, but for a Campaign of the handle that leads, which proclaims.
// It costs nothing while it neither leads nor waits, and need not be closed. All
// methods are safe for concurrent use.
//
// To lead is a lease, like holding a lock. A leader may be paused at any moment
// and act when somebody else leads already. Lost tells early, but only a resource
// that checks the fence can refuse. Names of elections and of locks are apart.
type Election struct {
	lock *FencedLock // in the name space of elections
}

// Election returns a new handle to the election of that name: 1 to 512 bytes of
// UTF-8 without NUL. It does no work and does not block; a bad name shows when
// the handle is used, as ErrInvalid or ErrTooLarge.
//
// Who leads by it does so under the node's own session, with Config.SessionTTL
// and no lock-delay.
func (n *Node) Election(name string) *Election {
	return &Election{lock: n.fencedLock(nil, wire.Space_ELECTION, name)}
}

// Election returns a new handle to the election of that name, like
// [Node.Election]. Who leads by it does so under this session: once that is
// invalidated, nobody leads until its lock-delay has passed, and Campaign fails
// with ErrSessionExpired, after ErrLockOwnershipLost for as long as a Resign is
// owed.
func (s *Session) Election(name string) *Election {
	return &Election{lock: s.node.fencedLock(s, wire.Space_ELECTION, name)}
}

// Campaign waits to lead and returns the fence of the new leadership. It blocks,
// first in, first out among all candidates of the group, until this one leads,
// ctx ends, or the session ends. value, of at most 64 KiB, is what others see
// once it leads. A handle that leads already proclaims the value, and gets the
// fence that it has.
//
// An error means that the handle does not lead by this call, as with
// [FencedLock.Lock], unless it led before. Errors: ctx's, with ErrUnavailable if no
// majority could be reached, or ErrUnknown if a value was being proclaimed;
// ErrLockOwnershipLost if the handle led and lost it, until Resign was called;
// ErrSessionExpired if the session ended while waiting, or before for a handle
// that belongs to one session; ErrTooLarge for the value, and with too many
// candidates or calls under way; ErrInvalid; ErrClosed.
func (e *Election) Campaign(ctx context.Context, value []byte) (Fence, error) {
	f, err := e.campaign(ctx, value)
	return f, fault("campaign", e.lock.name, err)
}

func (e *Election) campaign(ctx context.Context, value []byte) (Fence, error) {
	if err := validCandidate(value); err != nil {
		return 0, err
	}
	for {
		f, err := e.lock.current()
		if errors.Is(err, ErrNotHeld) {
			return e.lock.acquire(ctx, true, value)
		}
		if err == nil {
			err = e.proclaim(ctx, value)
		}
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, ErrNotHeld):
			return 0, err
		}
	}
}

func validCandidate(value []byte) error {
	if len(value) > machine.MaxCandidate {
		return fmt.Errorf("%w: the value has %d bytes of at most %d", ErrTooLarge, len(value), machine.MaxCandidate)
	}
	return nil
}

// Proclaim changes the value that others see, of at most 64 KiB. It blocks until
// the group has agreed. ErrNotHeld: the handle does not lead, and nothing was
// done. ErrLockOwnershipLost: it led and lost it. Further errors: ErrTooLarge,
// ErrClosed, and ctx's with ErrUnavailable or ErrUnknown.
func (e *Election) Proclaim(ctx context.Context, value []byte) error {
	err := validCandidate(value)
	if err == nil {
		err = e.proclaim(ctx, value)
	}
	return fault("proclaim", e.lock.name, err)
}

func (e *Election) proclaim(ctx context.Context, value []byte) error {
	l := e.lock
	if _, err := l.current(); err != nil {
		return err
	}
	l.mu.Lock()
	h := l.hold
	l.mu.Unlock()
	if h == nil {
		return ErrNotHeld
	}
	guarded, stop := guard(ctx, h.lost) // a lost leader need not wait for a majority
	defer stop()
	reply, err := l.node.exec(guarded, &wire.Command{Op: &wire.Command_Proclaim{Proclaim: &wire.Proclaim{
		Name: l.name, Session: h.session.id[:], Handle: l.handle, Fence: uint64(h.fence), Value: value,
	}}})
	switch {
	case err != nil && ctx.Err() == nil && guarded.Err() != nil:
		return ErrLockOwnershipLost
	case err != nil:
		return err
	}
	err = refusal(reply)
	if errors.Is(err, ErrNotHeld) || errors.Is(err, ErrSessionExpired) || errors.Is(err, ErrLockOwnershipLost) {
		if l.holds(h) {
			return ErrLockOwnershipLost
		}
		return ErrNotHeld // it was given up meanwhile
	}
	return err
}

// Resign gives the lead up, and to the candidate that has waited longest. It
// blocks until the group has agreed, or ctx ends.
//
// The lead counts as given up from the call on, whatever Resign returns. When ctx
// ends first, or had ended before, it is still given up in the background until
// that is done or the session has ended, and the error wraps ctx's and ErrUnknown.
// ErrNotHeld: the handle does not lead, and nothing was done.
// ErrLockOwnershipLost: the lead was lost before; the handle may campaign again.
func (e *Election) Resign(ctx context.Context) error {
	return fault("resign", e.lock.name, e.lock.unlock(ctx))
}

// Lost returns a channel that is closed when the lead is lost: when the session
// could not be renewed in time, by this process's own clock and before the group
// may let another lead, or when the group has ended the session. It is not closed
// by Resign. It is nil when the handle does not lead.
func (e *Election) Lost() <-chan struct{} { return e.lock.Lost() }

// Run campaigns with the value, runs lead when it leads, and resigns when lead
// has returned. The context that lead gets ends when ctx does, and, with the cause
// ErrLockOwnershipLost, when the lead is lost; lead should then stop. After a loss
// Run campaigns again. It blocks until
//
//   - lead returned nil without a loss: Run returns nil;
//   - lead returned an error other than the loss, or than the end of its context
//     after one: Run returns it;
//   - ctx ended: Run resigns if it leads, and returns ctx's error;
//   - the session has ended of a handle that belongs to one: ErrSessionExpired;
//   - Campaign failed otherwise: Run returns its error.
//
// Run waits for lead, however long it takes to stop, and then for the resignation,
// at most until the session's deadline if it has one.
func (e *Election) Run(ctx context.Context, value []byte, lead func(ctx context.Context, f Fence) error) error {
	for {
		f, err := e.campaign(ctx, value)
		lost := errors.Is(err, ErrSessionExpired) && e.lock.session == nil
		if err == nil {
			lost, err = e.term(ctx, f, lead)
		}
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = errors.Join(ended(ctx), err)
		}
		if !lost || ctx.Err() != nil {
			return fault("run", e.lock.name, err)
		}
	}
}

// term is the time from a grant to the resignation. With lost set there was no
// more to it than that the lead was lost.
func (e *Election) term(ctx context.Context, f Fence, lead func(ctx context.Context, f Fence) error) (lost bool, err error) {
	guarded, stop := guard(ctx, e.Lost())
	defer stop()
	defer func() {
		resigned := e.lock.unlock(context.WithoutCancel(ctx))
		told := errors.Is(context.Cause(guarded), ErrLockOwnershipLost)
		if errors.Is(resigned, ErrLockOwnershipLost) || told {
			lost = err == nil || errors.Is(err, ErrLockOwnershipLost) || told && errors.Is(err, context.Canceled)
			return
		}
		if !errors.Is(resigned, ErrNotHeld) { // or lead has resigned itself
			err = errors.Join(err, resigned)
		}
	}()
	return false, lead(guarded, f)
}
