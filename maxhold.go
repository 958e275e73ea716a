package conclave

import (
	"context"
	"fmt"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
)

// MaxHold has each hold of the handle end d after its grant, 1 ms to 24 hours, whether or not its session is renewed; 0
// is not at all. The group counts its own time, which stands still while it has no leader. The hold is lost then, as
// with its session: Lost is closed before, by this process's own clock, Fence, Unlock, Release and the context of Do
// report [ErrHoldExpired], and the session's lock-delay keeps others waiting. The session and what else it holds live on.
//
// A grant of which this process learns after that time only, as after a lost connection, is released, and the call fails with ErrHoldExpired.
// Then it holds nothing, and no Unlock is owed.
//
// So it bounds for how long others wait for a holder that lives and does not release what it has. Without it work may take as long as it
// needs: a lease that ends in the middle of healthy work is a fault of its own, so take d far longer than the work, and
// [FencedLock.Extend] or [Permit.Extend] when it takes longer. Locking a [Reentrant] handle again does not move the end, nor does
// [RWLock.Downgrade]. After [Group.AttachSession] the end counts from the grant to the new process, and what none of its
// handles claims ends when it would have ended.
//
// The shared holds of one [RWLock] are alike: RUnlock and Extend concern the one that ends first, and when one is lost,
// Lost and Fence say so to all until an RUnlock for it. Goroutines that must not disturb each other take a handle each.
//
// It cannot be combined with [Linger]: the group knows nothing of what a node grants by itself. While a member of the group
// runs a build that does not know it, each acquisition fails with ErrUpgradeRequired.
//
// For permits there is [Semaphore.WithMaxHold].
func MaxHold(d time.Duration) LockOption {
	return lockOption(func(o *lockOptions) {
		if err := validMaxHold(d); err != nil {
			o.err = err
			return
		}
		o.config.MaxHold = d
	})
}

// WithMaxHold returns another handle to the semaphore, under the same session and with the limit that this handle uses
// now. Permits that are acquired by it end d after their grant, as [MaxHold] describes; 0 is not at all. It does not block; an
// invalid d is reported when the new handle is used, as ErrInvalid.
func (s *Semaphore) WithMaxHold(d time.Duration) *Semaphore {
	other := &Semaphore{group: s.group, lease: s.lease, name: s.name, bad: s.bad, follows: s.follows, maxHold: d, resizes: make(chan struct{}, 1)}
	if err := validMaxHold(d); other.bad == nil {
		other.bad = err
	}
	other.limit.Store(s.limit.Load())
	return other
}

func validMaxHold(d time.Duration) error {
	if d == 0 {
		return nil
	}
	return validEnd(d, "want 0 (none) or")
}

// validEnd checks the time after which a hold is to end.
func validEnd(d time.Duration, want string) error {
	const least, most = time.Duration(machine.MinMaxHold), time.Duration(machine.MaxMaxHold)
	if d < least || d > most {
		return fmt.Errorf("%w time to hold: %s %v to %v, got %v", ErrInvalid, want, least, most, d)
	}
	return nil
}

// apply applies the options of a handle, and refuses those that exclude each other.
func (o *lockOptions) apply(opts []LockOption) {
	for _, opt := range opts {
		opt.applyLock(o)
	}
	switch {
	case o.err != nil:
	case o.isShared && !o.set:
		o.err = fmt.Errorf("%w option: Shared is for a LockSet: RWLock takes one lock shared", ErrInvalid)
	case o.set && o.config.Reentrant:
		o.err = fmt.Errorf("%w option: Reentrant with LockSet: no handle takes a set twice", ErrInvalid)
	case o.config.Linger == 0:
	case o.set:
		o.err = fmt.Errorf("%w option: Linger with LockSet: its locks are released together", ErrInvalid)
	case o.config.MaxHold > 0:
		o.err = fmt.Errorf("%w options: MaxHold with Linger: the group does not know for how long a handle has what its node grants by itself", ErrInvalid)
	case o.config.RefuseDeadlock:
		o.err = fmt.Errorf("%w options: RefuseDeadlock with Linger: the group does not know which handle waits for a lock that lingers", ErrInvalid)
	}
}

// Extend moves the end of a hold with [MaxHold] to d from now, 1 ms to 24 hours, by the group's time: later or
// earlier. It blocks until the group has decided.
//
// ErrInvalid: d, or the handle was made without MaxHold. ErrNotHeld; [ErrHoldExpired] and ErrLockOwnershipLost if the
// hold was lost, also during the call; ErrBusy; ErrClosed; and ctx's, with ErrUnavailable if nothing was sent, or else with
// ErrUnknown. Then the outcome is awaited in the background, and until it is known the holder may rely on the earlier of
// the two ends.
func (l *FencedLock) Extend(ctx context.Context, d time.Duration) error {
	return extend(ctx, l.group, l.span(ctx, CallExtend, "extend"), l.name, l.bad, d, l.handle.Extend)
}

// Extend moves the end of what the handle holds, exclusively or shared, as [FencedLock.Extend] does; of several shared
// holds that of the one that ends first. Calls that are under way together each move the end of another one.
func (l *RWLock) Extend(ctx context.Context, d time.Duration) error {
	return extend(ctx, l.group, l.span(ctx, CallExtend, "extend"), l.name, l.bad, d, l.handle.Extend)
}

// Extend moves the end of the permits, if the handle was made with [MaxHold], as [FencedLock.Extend] does.
func (p *Permit) Extend(ctx context.Context, d time.Duration) error {
	return extend(ctx, p.group, p.span(ctx, CallExtend, "extend"), p.name, nil, d, p.permit.Extend)
}

func extend(ctx context.Context, g *Group, s *span, name string, bad error, d time.Duration, call func(context.Context, time.Duration) error) error {
	began, err := g.calls.begin(), bad
	if err == nil {
		err = validEnd(d, "want")
	}
	if err == nil {
		err = call(ctx, d)
	}
	err = fault("extend", name, err)
	s.end(err)
	g.calls.returned(CallExtend, began, err)
	return err
}

// holding runs f while something is held with the fence, and releases it afterwards.
func holding(ctx context.Context, fence Fence, loss *client.Loss, release func(context.Context) error,
	f func(ctx context.Context, fence Fence) error) (err error) {
	defer func() { err = joined(err, release(context.WithoutCancel(ctx))) }()
	held, stop := client.WithLoss(ctx, loss.Done(), func() error { return lossOf(loss) })
	defer stop()
	return f(ContextWithFence(held, fence), fence)
}

// lossOf is the error of a hold that was lost.
func lossOf(loss *client.Loss) error {
	if loss.Overdue() {
		return ErrHoldExpired
	}
	return ErrLockOwnershipLost
}
