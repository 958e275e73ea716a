package conclave

import (
	"context"

	"github.com/conclave-go/conclave/internal/client"
)

// Permit is what one Acquire of a [Semaphore] was granted, whatever the number of
// permits. Release releases it as a whole. All methods are safe for concurrent use.
type Permit struct {
	group  *Group
	name   string
	permit *client.Permit
}

// Slots returns the numbers of the permits, ascending, each from 0 to the limit less one. No other Permit of the
// semaphore has one of them until this one is released or, after the loss of its session, that session's lock-delay
// has passed. So a number can be the ID of a worker, a port or a partition.
//
// The numbers are those that a session of the same name had last, as far as they are free, and then the smallest free
// ones. What the group remembers for that is bounded; it ends with the semaphore, which only Resize keeps while it is
// not in use. A Resize to fewer changes no number that is held, nor does [Group.AttachSession].
//
// Slots is nil for more than 128 permits, and for those granted before the group reached feature level 7. It
// reads no clock: a holder that was paused may use a number that another one has by now. Use a session with
// a lock-delay, ask [Permit.Fence] before use, and pass the fence to what must not see one number twice.
func (p *Permit) Slots() (numbers []int) {
	for _, n := range p.permit.Slots() {
		numbers = append(numbers, int(n))
	}
	return numbers
}

// Release releases the permits. It blocks until the group has agreed or ctx is done.
//
// The permits count as released from the call on, whatever Release returns. If ctx is
// done, even before the call, the release is still submitted and pursued in the
// background until it is applied or the session has ended, and the error wraps ctx's
// and ErrUnknown. ErrNotHeld: Release was called before; no effect.
// ErrLockOwnershipLost: the permits were lost before.
func (p *Permit) Release(ctx context.Context) error {
	began, span := p.group.calls.begin(), p.span(ctx, CallRelease, "release")
	err := fault("release", p.name, p.permit.Release(ctx, span.trace()))
	span.end(err)
	p.group.calls.returned(CallRelease, began, err)
	return err
}

// giveUp implements grant.
func (p *Permit) giveUp() { _ = p.permit.Release(ended(), nil) }

func (p *Permit) span(ctx context.Context, kind CallKind, op string) *span {
	t := &p.group.tracing
	if !t.on() {
		return nil
	}
	return t.begin(ctx, Operation{Kind: kind, Op: op, Name: p.name, Fence: Fence(p.permit.GrantedFence())})
}

// Fence returns the fence of this acquisition. It does not block, needs no network and
// reads the clock itself: a holder that was paused for longer than its session allows
// is refused here, with ErrLockOwnershipLost, even before Lost is closed. ErrNotHeld:
// Release was called.
func (p *Permit) Fence() (Fence, error) {
	f, err := p.permit.Fence()
	return Fence(f), fault("fence", p.name, err)
}

// Lost returns a channel that is closed when the permits are lost, with their session or by [MaxHold], as
// [FencedLock.Lost] is. Release does not close it.
func (p *Permit) Lost() <-chan struct{} { return p.permit.Lost() }
