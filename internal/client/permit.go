package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Permit is one acquisition of permits of a semaphore.
type Permit struct {
	name    string
	maxHold time.Duration

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
	MaxHold time.Duration // after which the permits are lost; 0: not by time
	Trace   *Trace
}

// Acquire acquires permits. It blocks until the group has decided, and with Wait
// until they are granted. A request under the client's own lease is repeated if that
// lease ends.
func (c *Client) Acquire(ctx context.Context, r PermitRequest) (*Permit, error) {
	if r.MaxHold > 0 {
		if err := c.hasMaxHold(); err != nil {
			return nil, err
		}
	}
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
		p := &Permit{name: r.Name, maxHold: r.MaxHold}
		_, err = newAcquisition(p, lease).run(ctx, &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Name: r.Name, Session: lease.id[:], Limit: r.Limit, Permits: r.Permits, Wait: r.Wait,
			MaxHold: int64(r.MaxHold),
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

// MayClaimMore reports whether an earlier process may have left permits in the lease which can be claimed even if a Resize has left
// fewer; l may be nil. Below its level the group would refuse them all the same.
func (l *Lease) MayClaimMore() bool {
	return l != nil && l.ttl == NoTTL && l.client.group.Level() >= wire.LevelClaim
}

// Release releases the permits. They count as released from the call on. It blocks
// until the group has agreed or ctx is done; the release is pursued in any case.
func (p *Permit) Release(ctx context.Context, tr *Trace) error {
	t := p.takeBack()
	switch {
	case t.hold == nil:
		return &Fault{Kind: NotHeld}
	case t.lost:
		return t.hold.loss()
	}
	return t.hold.release(ctx, p, tr, t)
}

// Fence returns the fence of the acquisition. It reads the clock.
func (p *Permit) Fence() (uint64, error) {
	if err := p.held(); err != nil {
		return 0, err
	}
	return p.hold.fence, nil
}

// held returns why the permits are not held; nil: they are.
func (p *Permit) held() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.released:
		return &Fault{Kind: NotHeld}
	case p.hold.isLost():
		return p.hold.loss()
	}
	return nil
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

// Loss is that of the permits.
func (p *Permit) Loss() *Loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold.losing()
}

// Lost is closed when the permits are lost.
func (p *Permit) Lost() <-chan struct{} { return p.Loss().Done() }

// granted implements target.
func (p *Permit) granted(l *Lease, r *wire.Reply, sent instant) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold, p.slots = newHold(p.name, l, grantOf(r)), r.GetSlots()
	p.hold.endAt(l.bound(p.maxHold, r, sent))
	return l.add(p.hold)
}

// takeBack implements target.
func (p *Permit) takeBack() taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return taken{}
	}
	p.released = true
	t := taken{hold: p.hold, lost: p.hold.isLost(), last: true, done: p.undoing()}
	p.hold.lease.remove(p.hold)
	return t
}

// undoing implements target: each Acquire stands by itself.
func (p *Permit) undoing() (done func()) { return func() {} }

func (p *Permit) job() string { return "" }

// semaphore implements target. What has a MaxHold may have been granted and have ended in entries that a snapshot skipped,
// as well as dismissed: another request finds out.
func (p *Permit) semaphore() string {
	if p.maxHold != 0 {
		return ""
	}
	return p.name
}

func (p *Permit) releaseCommand(l *Lease, g grant) *wire.Command {
	return &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{
		Name: p.name, Session: l.id[:], Fence: g.fence,
	}}}
}
