package conclave

import (
	"context"
	"fmt"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// Permit is what one Acquire of a [Semaphore] was granted, however many permits
// that is. It is given back by Release, as a whole. All methods are safe for
// concurrent use.
type Permit struct {
	name string

	mu       sync.Mutex
	hold     *hold // guarded by mu; set by the grant
	released bool  // guarded by mu
}

// Release gives the permits back, and to whoever waits for them. It blocks until
// the group has agreed, or ctx ends.
//
// The permits count as given back from the call on, whatever Release returns.
// When ctx ends first, or had ended before, the release still goes out and is
// pursued until it is done or the session has ended, and the error wraps ctx's
// and ErrUnknown. ErrNotHeld: Release was called before, and nothing was done.
// ErrLockOwnershipLost: the permits were lost before.
func (p *Permit) Release(ctx context.Context) error {
	return fault("release", p.name, p.giveUp(ctx))
}

func (p *Permit) giveUp(ctx context.Context) error {
	h, lost := p.giveBack()
	switch {
	case h == nil:
		return ErrNotHeld
	case lost:
		return ErrLockOwnershipLost
	}
	return h.handBack(ctx, p.release(h.session, h.fence))
}

// Fence returns the fence of this acquisition. It does not block, needs no
// network and looks at the clock itself: a holder that was paused for longer than
// its session allows gets ErrLockOwnershipLost here even before Lost is closed.
// ErrNotHeld: Release was called.
func (p *Permit) Fence() (Fence, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.released:
		return 0, fault("fence", p.name, ErrNotHeld)
	case p.hold.isLost():
		return 0, fault("fence", p.name, ErrLockOwnershipLost)
	}
	return p.hold.fence, nil
}

// Lost returns a channel that is closed when the permits are lost with their
// session: before the group may grant them to others if the session could not be
// renewed, or when the group has ended it. It is not closed by Release.
func (p *Permit) Lost() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold.lost
}

func (p *Permit) place() (wire.Space, string, uint64) { return wire.Space_SEMAPHORE, p.name, 0 }

func (p *Permit) granted(s *Session, f Fence) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = newHold(p.name, s, f)
	if !s.keep(p.hold) {
		return fmt.Errorf("waiting: %w", ErrSessionExpired)
	}
	return nil
}

func (p *Permit) giveBack() (h *hold, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return nil, false
	}
	p.released = true
	p.hold.session.release(p.hold)
	return p.hold, p.hold.isLost()
}

func (p *Permit) release(s *Session, f Fence) *wire.Command {
	return &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{
		Name: p.name, Session: s.id[:], Fence: uint64(f),
	}}}
}
