package client

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/conclave-go/conclave/internal/wire"
)

// Hold is one acquisition under a lease, of a lock, of the leadership of an
// election, or of permits, until it is released as often as it was acquired.
type Hold struct {
	name  string
	lease *Lease
	grant
	in   *tenure // of this process; nil: the group has granted it
	part *part   // of a shared tenure, for all holds of the handle in it; nil: as in

	bound *bound // nil: it does not end in time

	fences []uint64 // of a set: those of its shared names

	downgraded atomic.Pointer[grant] // what it is since then; nil: what was granted

	// Guarded by the lease's mu.
	lost  *Loss // closed by the lease; nil: not asked for so far
	ended bool  // with the lease

	// Guarded by the mu of the handle that has it.
	count     int
	extending int        // so many calls of Extend are under way
	released  bool       // completely, and before it was lost; of locks
	turning   *downgrade // the last one; nil: there was none
}

// grant identifies a grant.
type grant struct {
	fence uint64
	share uint64 // its number, as the shares of a lock have one fence; 0: it is none
}

func grantOf(r *wire.Reply) grant { return grant{r.GetFence(), r.GetShare()} }

func newHold(name string, l *Lease, g grant) *Hold {
	return &Hold{name: name, lease: l, grant: g, count: 1}
}

// now returns the grant that the group knows the hold by.
func (h *Hold) now() grant {
	if g := h.downgraded.Load(); g != nil {
		return *g
	}
	return h.grant
}

func (h *Hold) isShared() bool { return h.now().share != 0 }

// isLost reads the clock by way of the lease, so it is right in a process that was
// suspended and has not run a timer yet.
func (h *Hold) isLost() bool { return h.lease.Err() != nil || h.isOverdue() }

// Loss is the loss of a hold, or of several that are lost together.
type Loss struct {
	done    chan struct{}
	also    *Loss // nil: none
	closed  bool  // guarded by the lease's mu
	overdue bool  // set before done is closed
}

func newLoss() *Loss { return &Loss{done: make(chan struct{})} }

// Done is closed when the hold is lost; nil: there is none.
func (s *Loss) Done() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.done
}

// Overdue reports, once Done is closed, whether the hold lasted for as long as it was to.
func (s *Loss) Overdue() bool { return s.overdue }

// close notes the loss. mu of the lease is held.
func (s *Loss) close(overdue bool) {
	for ; s != nil && !s.closed; s = s.also {
		s.closed, s.overdue = true, overdue
		close(s.done)
	}
}

// losing returns what the lease closes when it ends, or the time of the hold, before the hold is
// released.
func (h *Hold) losing() *Loss {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.lost == nil {
		h.lost = newLoss()
		if h.ended || h.bound != nil && h.bound.overdue {
			h.lost.close(!h.ended)
		}
	}
	return h.lost
}

// endedWithLease reports whether the lease ended before the hold was released.
func (h *Hold) endedWithLease() bool {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return h.ended
}

// taken is a hold of which one count was taken off its handle.
type taken struct {
	hold *Hold // nil: the handle had none
	lost bool  // there is nothing to release
	last bool  // it was the last count
	turn *downgrade
	done func() // to call once the release is settled; nil with lost
}

// release releases what was taken, for a caller that does not wait for it.
func (t taken) release(from target) {
	if t.hold.part != nil {
		t.leftPart()
		return
	}
	t.turn.after(func() {
		t.hold.lease.client.pursue(from.releaseCommand(t.hold.lease, t.hold.now()), func(answer) { t.done() })
	})
}

// leftPart notes that a hold was taken off a part of a tenure.
func (t taken) leftPart() {
	if t.last {
		t.hold.part.of.left()
	}
}

// take takes one count of the exclusive hold off the handle, or of a share, if a caller does not know
// that its exclusive hold has turned into one.
func (l *Lock) take() taken {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.hold != nil:
		return l.takeOf(l.hold)
	case l.shares != nil && l.shares.either > 0:
		l.shares.either--
		return l.shares.take()
	}
	return taken{}
}

// takeOf takes one count of a hold off the handle. l.mu is held.
func (l *Lock) takeOf(h *Hold) taken {
	t := taken{hold: h, lost: h.isLost(), turn: h.turning}
	if l.hold == h && l.shares != nil && l.shares.either > 0 {
		l.shares.either--
	}
	if h.count--; h.count == 0 {
		t.last = true
		h.lease.remove(h)
		h.released = !t.lost
		if l.hold == h {
			if l.hold = nil; t.lost && h.bound != nil {
				l.expired = h.fence
			}
		} else {
			l.shares.remove(h)
		}
	}
	if !t.lost && h.in == nil {
		t.done = l.undoingOf(h)
	}
	return t
}

// undoingOf is the undoing of the modes that a hold may be in. l.mu is held.
func (l *Lock) undoingOf(h *Hold) (done func()) {
	switch {
	case h.turning.pending():
	case h.isShared():
		return l.shares.undoing()
	default:
		return l.order.begin()
	}
	exclusive, shared := l.order.begin(), l.shares.undoing()
	return func() { exclusive(); shared() }
}

// releaseTaken releases what was taken, as Release does.
func (l *Lock) releaseTaken(ctx context.Context, t taken, tr *Trace) error {
	if t.hold == nil {
		return &Fault{Kind: NotHeld}
	}
	if t.hold.part != nil {
		t.leftPart()
	}
	switch {
	case t.lost:
		return t.hold.loss()
	case t.hold.part != nil:
		return nil
	case t.hold.in != nil:
		if t.last { // another call may have taken the hold before
			t.hold.in.freed(l, tr.id())
		}
		return nil
	}
	return t.hold.release(ctx, l, tr, t)
}

// release submits the command that releases what was taken. The command is pursued until
// it is applied or the session has ended, and then calls done; release waits for that
// until ctx is done.
func (h *Hold) release(ctx context.Context, from target, tr *Trace, t taken) error {
	answered := make(chan answer, 1)
	on := func(a answer) { t.done(); answered <- a }
	if id := tr.id(); t.turn == nil {
		h.submitRelease(from, id, on)
	} else {
		t.turn.after(func() { h.submitRelease(from, id, on) })
	}
	select {
	case a := <-answered:
		err := a.fault()
		if a.expired() || isCode(err, wire.Code_NOT_HELD, wire.Code_SESSION_EXPIRED) {
			return h.loss() // it was held here, so it was lost before
		}
		if a.err != nil {
			err = h.lease.client.ended(err)
		}
		return err
	case <-h.lease.done:
		// The command may have been applied in time, but whether the hold was
		// still ours until then is unknown.
		return h.loss()
	case <-ctx.Done():
		return &Fault{Kind: Unknown, Detail: "the release is pursued in the background", Cause: ContextError(ctx)}
	}
}

// submitRelease submits the command that releases the hold as the group knows it now.
func (h *Hold) submitRelease(from target, id []byte, on func(answer)) {
	h.lease.client.pursue(h.lease.client.traced(from.releaseCommand(h.lease, h.now()), id), on)
}

// WithLoss derives a context that is done when ctx is, and, with the cause that cause then returns, when
// lost is closed. The caller must call stop.
func WithLoss(ctx context.Context, lost <-chan struct{}, cause func() error) (derived context.Context, stop func()) {
	derived, cancel := context.WithCancelCause(ctx)
	finished := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-lost:
			cancel(cause())
		case <-finished:
		}
	})
	return derived, func() {
		close(finished)
		watching.Wait()
		cancel(nil)
	}
}
