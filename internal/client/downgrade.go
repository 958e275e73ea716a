package client

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// downgrade is a request that turns an exclusive hold into a share. Until it is settled it is
// not known which of the two the hold is, so releases wait for that. A nil one is settled.
type downgrade struct {
	ordered func() // ends the undoing of the handle

	mu      sync.Mutex
	settled bool     // guarded by mu
	then    []func() // guarded by mu; what waits

	unknown bool // guarded by mu of the handle; the caller does not know the outcome
}

// after calls f once the downgrade is settled.
func (d *downgrade) after(f func()) {
	if d == nil || !d.waits(f) {
		f()
	}
}

func (d *downgrade) waits(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.settled {
		d.then = append(d.then, f)
	}
	return !d.settled
}

// settle notes that the hold has its final mode.
func (d *downgrade) settle() {
	d.mu.Lock()
	then := d.then
	d.settled, d.then = true, nil
	d.mu.Unlock()
	for _, f := range then {
		f()
	}
	d.ordered()
}

// pending reports whether it is not settled yet.
func (d *downgrade) pending() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.settled
}

// mayHaveTurned reports whether a caller may take the hold for a share or for an exclusive one.
// mu of the handle is held.
func (d *downgrade) mayHaveTurned() bool {
	return d.pending() || d != nil && d.unknown
}

// turned reports whether a hold is in another mode than it was, or may come to be.
func (l *Lock) turned(h *Hold, shared bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return h.turning.pending() || h.isShared() != shared
}

// Downgrade turns the exclusive hold into a shared one, with as many counts, and returns its
// fence. No other owner has the lock in between. It blocks until the group has decided. If ctx
// is done first, the outcome is awaited in the background, and both releases release the hold.
func (l *RWLock) Downgrade(ctx context.Context, tr *Trace) (fence uint64, err error) {
	if err := l.client.hasShared(); err != nil {
		return 0, err
	}
	for {
		h, d, settled, err := l.beginDowngrade()
		switch {
		case err != nil:
			return 0, err
		case d != nil:
			return l.downgrade(ctx, h, d, tr)
		}
		if err := h.lease.await(ctx, settled); err != nil {
			return 0, err
		}
	}
}

// beginDowngrade begins a downgrade, unless something is being undone. From then on no release
// names the hold as it was.
func (l *RWLock) beginDowngrade() (*Hold, *downgrade, <-chan struct{}, error) {
	if err := l.client.Usable(); err != nil {
		return nil, nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch h := l.hold; {
	case h == nil:
		return nil, nil, nil, &Fault{Kind: NotHeld}
	case h.isLost():
		return nil, nil, nil, h.loss()
	default:
		settled := l.order.wait()
		if settled != nil {
			return h, nil, settled, nil
		}
		h.turning = &downgrade{ordered: l.order.begin()}
		return h, h.turning, nil, nil
	}
}

func (l *RWLock) downgrade(ctx context.Context, h *Hold, d *downgrade, tr *Trace) (uint64, error) {
	bounded, stop := WithLoss(ctx, h.losing().done, leaseEnded) // a lost owner need not wait for a quorum
	defer stop()
	cmd := l.client.traced(&wire.Command{Op: &wire.Command_Downgrade{Downgrade: &wire.Downgrade{
		Name: l.name, Session: h.lease.id[:], Handle: l.number, Fence: h.fence,
	}}}, tr.id())
	reply, err := l.client.send(bounded, cmd, func(a answer) { l.downgraded(h, d, a) })
	if IsKind(err, Unavailable) || IsKind(err, Interrupted) {
		d.settle() // it was not sent
	}
	if err == nil {
		err = refusal(reply)
	}
	switch {
	case err == nil:
		if h.isLost() {
			l.doubt(h, d)
			return 0, h.loss()
		}
		return reply.GetFence(), nil
	case ctx.Err() == nil && bounded.Err() != nil:
		l.doubt(h, d)
		return 0, h.loss()
	case errors.Is(err, tickets.ErrUnregistered), isCode(err, wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION):
		h.lease.end(endedByGroup(), lost)
		return 0, h.loss()
	case isCode(err, wire.Code_NOT_HELD, wire.Code_OWNERSHIP_LOST):
		if l.has(h) {
			return 0, h.loss()
		}
		return 0, &Fault{Kind: NotHeld} // it was released meanwhile
	case IsKind(err, Unknown):
		l.doubt(h, d)
	}
	return 0, err
}

// doubt notes that the caller does not know which mode the hold has, or will have.
func (l *RWLock) doubt(h *Hold, d *downgrade) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.unknown = true
	if l.hold == h || l.shares.has(h) {
		l.shares.either += h.count
	}
}

// downgraded gets the outcome of a downgrade.
func (l *RWLock) downgraded(h *Hold, d *downgrade, a answer) {
	if a.fault() == nil {
		l.mu.Lock()
		g := grantOf(a.reply)
		h.downgraded.Store(&g)
		if l.hold == h {
			l.hold = nil
			l.shares.lostWith(h)
			// The last one to be released: its caller may wait for its loss.
			l.shares.holds = slices.Insert(l.shares.holds, 0, h)
		}
		l.mu.Unlock()
	}
	d.settle()
}
