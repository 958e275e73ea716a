package client

import (
	"context"
	"errors"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// Permit is one acquisition of permits of a semaphore.
type Permit struct {
	name string

	mu       sync.Mutex
	hold     *Hold    // guarded by mu; set by the grant
	slots    []uint32 // guarded by mu; set by the grant: the numbers, ascending. nil: none
	released bool     // guarded by mu
}

// PermitRequest describes an acquisition of permits.
type PermitRequest struct {
	Lease   *Lease // nil: the client's own
	Name    string
	Limit   uint32 // on which all users of the semaphore have to agree
	Permits uint32
	Wait    bool
	Trace   *Trace
}

// Acquire acquires permits. It blocks until the group has decided, and with Wait
// until they are granted. A request under the client's own lease is repeated if that
// lease ends.
func (c *Client) Acquire(ctx context.Context, r PermitRequest) (*Permit, error) {
	for {
		if ctx.Err() != nil {
			return nil, contextFault(Interrupted, ctx)
		}
		if err := c.Usable(); err != nil {
			return nil, err
		}
		lease, err := c.leaseFor(ctx, r.Lease)
		if err != nil {
			return nil, err
		}
		p := &Permit{name: r.Name}
		_, err = newAcquisition(p, lease).run(ctx, &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Name: r.Name, Session: lease.id[:], Limit: r.Limit, Permits: r.Permits, Wait: r.Wait,
		}}}, r.Trace)
		switch {
		case err == nil:
			return p, nil
		case errors.Is(err, errUnknownSession):
			lease.end(endedByGroup(), lost)
		case errors.Is(err, errLeaseEnded): // leaseFor returns why, or the next lease
		default:
			return nil, err
		}
	}
}

// Release releases the permits. They count as released from the call on. It blocks
// until the group has agreed or ctx is done; the release is pursued in any case.
func (p *Permit) Release(ctx context.Context, tr *Trace) error {
	t := p.takeBack()
	switch {
	case t.hold == nil:
		return &Fault{Kind: NotHeld}
	case t.lost:
		return &Fault{Kind: Lost}
	}
	return t.hold.release(ctx, p, tr, t)
}

// Fence returns the fence of the acquisition. It reads the clock.
func (p *Permit) Fence() (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.released:
		return 0, &Fault{Kind: NotHeld}
	case p.hold.isLost():
		return 0, &Fault{Kind: Lost}
	}
	return p.hold.fence, nil
}

// GrantedFence returns the fence of the acquisition, even if it was lost or released.
func (p *Permit) GrantedFence() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold.fence
}

// Slots returns the numbers of the permits, even if they were lost or released. The slice is never changed.
func (p *Permit) Slots() []uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots
}

// Lost is closed when the permits are lost.
func (p *Permit) Lost() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold.lostChannel()
}

// granted implements target.
func (p *Permit) granted(l *Lease, r *wire.Reply) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold, p.slots = newHold(p.name, l, grantOf(r)), r.GetSlots()
	if !l.add(p.hold) {
		return errLeaseEnded
	}
	return nil
}

// takeBack implements target.
func (p *Permit) takeBack() taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return taken{}
	}
	p.released = true
	p.hold.lease.remove(p.hold)
	return taken{hold: p.hold, lost: p.hold.isLost(), last: true, done: p.undoing()}
}

// undoing implements target: each Acquire stands by itself.
func (p *Permit) undoing() (done func()) { return func() {} }

func (p *Permit) semaphore() string { return p.name }

func (p *Permit) releaseCommand(l *Lease, g grant) *wire.Command {
	return &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{
		Name: p.name, Session: l.id[:], Fence: g.fence,
	}}}
}
