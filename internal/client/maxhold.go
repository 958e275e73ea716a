package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/maxhold"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// bound is the end in time of a hold, by the local clock. It precedes the time at which the group
// ends the hold, whether or not the lease is renewed.
type bound struct {
	until atomic.Int64 // the instant from which on the hold is lost

	// Guarded by the lease's mu.
	end     maxhold.End
	timer   *time.Timer
	overdue bool // the hold was lost by this
}

// hasMaxHold returns why the group does not end holds in time: below its level a member would take a
// request for such a hold for one without an end.
func (c *Client) hasMaxHold() error {
	if c.group.Level() >= wire.LevelMaxHold {
		return nil
	}
	return belowLevel("knows MaxHold")
}

// bound makes the end of a hold with the time after which it ends in the group; nil: 0, it does not. sent is when its
// request was sent.
func (l *Lease) bound(maxHold time.Duration, r *wire.Reply, sent instant) *bound {
	if maxHold == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &bound{end: maxhold.Granted(maxhold.Outcome{
		Sent: sent, Allowed: time.Duration(r.GetAllowed()), Now: r.GetNow(), Index: r.GetIndex(),
	}, l.heard)}
	b.until.Store(int64(b.end.At()))
	return b
}

// errOverdue: the group has not ended yet what the handle has lost, and took a request of a reentrant handle for a
// re-entry. Its holder was to stop, and a grant is no part of that, under the same fence.
var errOverdue = errors.New("the hold is about to end")

// mayOutlast reports whether the group may still have what the handle has lost.
func (l *Lock) mayOutlast() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expired != 0
}

// endAt gives a new hold its end.
func (h *Hold) endAt(b *bound) {
	if h.bound = b; b != nil {
		h.lost = newLoss()
	}
}

// isOverdue reads the clock.
func (h *Hold) isOverdue() bool {
	if h.bound == nil || int64(h.lease.client.clock.Now()) < h.bound.until.Load() {
		return false
	}
	return h.lease.endOverdue(h)
}

// loss is the fault of a hold that was lost.
func (h *Hold) loss() error {
	overdue := h.lease.Err() == nil && h.bound != nil && int64(h.lease.client.clock.Now()) >= h.bound.until.Load()
	return &Fault{Kind: Lost, Overdue: overdue || h.wasOverdue()}
}

func (h *Hold) wasOverdue() bool {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return h.bound != nil && h.bound.overdue
}

// endOverdue ends a hold whose time has passed, and reports whether it has. One that was released is not lost, and one
// of a lease that has ended is lost with that.
func (l *Lease) endOverdue(h *Hold) bool {
	l.mu.Lock()
	b := h.bound
	if _, held := l.bounded[h]; !held || int64(l.client.clock.Now()) < b.until.Load() {
		defer l.mu.Unlock()
		return b.overdue
	}
	b.overdue = true
	b.until.Store(int64(longAgo))
	l.unlist(h)
	h.lost.close(true)
	l.client.losses.underWay.Add(1)
	defer l.client.losses.underWay.Done()
	l.mu.Unlock()
	l.client.losses.noteOverdue(h)
	return true
}

// unlist takes out a hold that was released or lost. l.mu is held.
func (l *Lease) unlist(h *Hold) {
	delete(l.setOf(h), h)
	if h.bound != nil {
		delete(l.bounded, h)
		if h.bound.timer != nil {
			h.bound.timer.Stop()
		}
	}
}

// setBoundTimer sets the timer of a hold that ends in time, and makes the client's next look no later. l.mu is held.
func (l *Lease) setBoundTimer(h *Hold) {
	at := instant(h.bound.until.Load())
	l.client.lookBy(at)
	if left := l.client.clock.Until(at); h.bound.timer == nil {
		h.bound.timer = time.AfterFunc(left, func() { l.checkBound(h) })
	} else {
		h.bound.timer.Reset(left)
	}
}

// checkBound runs when the end of a hold may have come.
func (l *Lease) checkBound(h *Hold) {
	if h.isOverdue() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, held := l.bounded[h]; held {
		l.setBoundTimer(h)
	}
}

// checkBounds checks all holds that end in time.
func (l *Lease) checkBounds() {
	l.mu.Lock()
	holds := make([]*Hold, 0, len(l.bounded))
	for h := range l.bounded { // order: each by itself
		holds = append(holds, h)
	}
	l.mu.Unlock()
	for _, h := range holds {
		l.checkBound(h)
	}
}

// Extend moves the end of what the handle holds to d from now. Of several shares it is the one that
// ends first, of those that no other Extend is moving. It blocks until the group has decided. If ctx is done first, the outcome is awaited in the background, and
// until then the hold ends at the earlier of the two times.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	for {
		h, err := l.toExtend(ctx)
		if err != nil {
			return err
		}
		g := h.now()
		err = h.extend(ctx, l.extension(h, g, d))
		l.extendReturned(h)
		ended := isCode(err, wire.Code_NOT_HELD, wire.Code_OWNERSHIP_LOST)
		switch {
		case err != nil && !ended:
			return err
		case g.share != 0 && !l.has(h) && l.present() != nil: // another call released this one of several
		case !ended:
			return nil
		case !l.has(h): // it was released meanwhile
			return &Fault{Kind: NotHeld}
		case !l.turned(h, g.share != 0):
			return h.loss()
		}
	}
}

// extension is the command that extends a hold of that grant.
func (l *Lock) extension(h *Hold, g grant, d time.Duration) *wire.Extend {
	cmd := &wire.Extend{Session: h.lease.id[:], Share: g.share, MaxHold: int64(d)}
	if l.parts != nil {
		cmd.Set, cmd.Fence = true, g.fence
		return cmd
	}
	if cmd.Space, cmd.Name = l.space, l.name; g.share == 0 {
		cmd.Handle, cmd.Fence = l.number, g.fence
	}
	return cmd
}

// toExtend returns the hold to extend, in the mode that it is in. extendReturned must be called for it.
func (l *Lock) toExtend(ctx context.Context) (*Hold, error) {
	for {
		if err := l.client.Usable(); err != nil {
			return nil, err
		}
		h := l.present()
		switch {
		case h == nil:
			return nil, &Fault{Kind: NotHeld}
		case h.isLost():
			return nil, h.loss()
		case h.bound == nil:
			return nil, endless()
		}
		chosen, turn := l.choose(h)
		if chosen != nil {
			return chosen, nil
		}
		settled := make(chan struct{})
		turn.after(func() { close(settled) })
		if err := h.lease.await(ctx, settled); err != nil {
			return nil, err
		}
	}
}

// choose chooses the hold to extend, given what the handle holds; nil: a downgrade of that is under way.
//
// The end of a share does not change while an Extend is under way, so a further Extend would move it again, and those that
// end next would be lost though their owners have extended.
func (l *Lock) choose(h *Hold) (chosen *Hold, turn *downgrade) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.turning.pending() {
		return nil, h.turning
	}
	if l.hold == nil && l.shares != nil && len(l.shares.holds) > 0 {
		h = slices.MinFunc(l.shares.holds, func(a, b *Hold) int {
			return cmp.Or(cmp.Compare(a.extending, b.extending), cmp.Compare(a.bound.until.Load(), b.bound.until.Load()))
		})
	}
	h.extending++
	return h, nil
}

// extendReturned notes that an Extend of the hold has returned. If its outcome is unknown, the hold may end by it or as
// before, and the earlier of the two counts for the next Extend.
func (l *Lock) extendReturned(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.extending--
}

func endless() error { return &Fault{Kind: Endless, Detail: "the handle was made without MaxHold"} }

// Extend moves the end of the permits, as [Lock.Extend] does.
func (p *Permit) Extend(ctx context.Context, d time.Duration) error {
	if err := p.hold.lease.client.Usable(); err != nil {
		return err
	}
	if err := p.held(); err != nil {
		return err
	}
	h := p.hold
	if h.bound == nil {
		return endless()
	}
	err := h.extend(ctx, &wire.Extend{
		Space: wire.Space_SEMAPHORE, Name: p.name, Session: h.lease.id[:], Fence: h.fence, MaxHold: int64(d),
	})
	if isCode(err, wire.Code_NOT_HELD) {
		if p.held() == nil {
			return h.loss()
		}
		return &Fault{Kind: NotHeld} // it was released meanwhile
	}
	return err
}

// extend submits the command that extends the hold.
func (h *Hold) extend(ctx context.Context, cmd *wire.Extend) error {
	client := h.lease.client
	x := h.beginExtension(time.Duration(cmd.MaxHold))
	loss := h.losing()
	bounded, stop := WithLoss(ctx, loss.done, leaseEnded) // a lost owner need not wait for a quorum
	defer stop()
	reply, err := client.send(bounded, extendCommand(cmd), func(a answer) { h.extended(x, a, cmd) })
	if IsKind(err, Unavailable) || IsKind(err, Interrupted) {
		h.settle(x) // it was not sent
	}
	if err == nil {
		err = refusal(reply)
	}
	switch {
	case err == nil:
		if h.isLost() {
			return h.loss()
		}
		return nil
	case ctx.Err() == nil && bounded.Err() != nil:
		return &Fault{Kind: Lost, Overdue: loss.overdue} // perhaps of another share
	case errors.Is(err, tickets.ErrUnregistered), isCode(err, wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION):
		h.lease.end(endedByGroup(), lost)
		return h.loss()
	}
	return err
}

func extendCommand(c *wire.Extend) *wire.Command {
	return &wire.Command{Op: &wire.Command_Extend{Extend: c}}
}

// beginExtension notes that an Extend is about to be sent: from then on the hold may end by it.
func (h *Hold) beginExtension(d time.Duration) *maxhold.Extension {
	l := h.lease
	sent := l.client.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	x := h.bound.end.Extend(sent, d)
	l.rebound(h)
	return x
}

// rebound makes the hold end at the earliest time at which the group may end it. A hold that is past its
// end stays lost. l.mu is held.
func (l *Lease) rebound(h *Hold) {
	b := h.bound
	if _, held := l.bounded[h]; !held || int64(l.client.clock.Now()) >= b.until.Load() {
		return
	}
	b.until.Store(int64(b.end.At()))
	l.setBoundTimer(h)
}

// settle notes that an Extend has had no effect.
func (h *Hold) settle(x *maxhold.Extension) {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	h.bound.end.Settle(x)
	h.lease.rebound(h)
}

// extended gets the outcome of an Extend. One that has none may have been applied, so the
// hold may end by it for ever.
func (h *Hold) extended(x *maxhold.Extension, a answer, cmd *wire.Extend) {
	switch {
	case errors.Is(a.err, tickets.ErrBusy), IsKind(a.err, ReadOnly), a.err == nil && refusal(a.reply) != nil:
		h.settle(x)
		return
	case a.err != nil:
		return
	}
	h.isOverdue()
	l, b := h.lease, h.bound
	l.mu.Lock()
	defer l.mu.Unlock()
	b.end.Extended(x, time.Duration(a.reply.GetAllowed()), a.reply.GetIndex())
	l.rebound(h)
	if b.overdue && l.err == nil && cmd.MaxHold != machine.MinMaxHold {
		// The group keeps for the extended time what is lost here.
		again := &wire.Extend{
			Space: cmd.Space, Name: cmd.Name, Session: cmd.Session, Handle: cmd.Handle, Fence: cmd.Fence, Share: cmd.Share,
			Set: cmd.Set, MaxHold: machine.MinMaxHold,
		}
		l.client.pursue(extendCommand(again), ignore)
	}
}
