package client

import (
	"context"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// Hold is one acquisition under a lease, of a lock, of the leadership of an
// election, or of permits, until it is released as often as it was acquired.
type Hold struct {
	name  string
	lease *Lease
	fence uint64
	in    *tenure // of this process; nil: the group has granted it

	// Guarded by the lease's mu.
	lost  chan struct{} // closed by the lease; nil: not asked for so far
	ended bool          // with the lease

	// Guarded by the mu of the handle that has it.
	count    int
	released bool // completely, and before it was lost; of locks
}

func newHold(name string, l *Lease, fence uint64) *Hold {
	return &Hold{name: name, lease: l, fence: fence, count: 1}
}

// isLost reads the clock by way of the lease, so it is right in a process that was
// suspended and has not run a timer yet.
func (h *Hold) isLost() bool { return h.lease.Err() != nil }

// lostChannel returns the channel that the lease closes when it ends before the hold is
// released.
func (h *Hold) lostChannel() <-chan struct{} {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if h.ended {
			close(h.lost)
		}
	}
	return h.lost
}

// release submits the command that releases the hold. The command is pursued until
// it is applied or the session has ended, and then calls done; release waits for that
// until ctx is done.
func (h *Hold) release(ctx context.Context, cmd *wire.Command, tr *Trace, done func()) error {
	cmd = h.lease.client.traced(cmd, tr.id())
	answered := make(chan answer, 1)
	h.lease.client.pursue(cmd, func(a answer) { done(); answered <- a })
	select {
	case a := <-answered:
		err := a.fault()
		if isCode(err, wire.Code_NOT_HELD, wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION) {
			return &Fault{Kind: Lost} // it was held here, so it was lost before
		}
		if a.err != nil {
			err = h.lease.client.ended(err)
		}
		return err
	case <-h.lease.done:
		// The command may have been applied in time, but whether the hold was
		// still ours until then is unknown.
		return &Fault{Kind: Lost}
	case <-ctx.Done():
		return &Fault{Kind: Unknown, Detail: "the release is pursued in the background", Cause: ContextError(ctx)}
	}
}

// WithLoss derives a context that is done when ctx is, and, with that cause, when
// lost is closed. The caller must call stop.
func WithLoss(ctx context.Context, lost <-chan struct{}, cause error) (derived context.Context, stop func()) {
	derived, cancel := context.WithCancelCause(ctx)
	finished := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-lost:
			cancel(cause)
		case <-finished:
		}
	})
	return derived, func() {
		close(finished)
		watching.Wait()
		cancel(nil)
	}
}
