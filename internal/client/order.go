package client

import (
	"context"
	"sync"
)

// order keeps the requests of one handle in order. A release or a withdrawal may be on
// its way after its caller has left, and the group may apply a later request first,
// since a lost one is sent again: a new request of the handle would find its own earlier
// hold in the way.
type order struct {
	mu      sync.Mutex
	undoing int           // guarded by mu
	settled chan struct{} // guarded by mu; closed when undoing is 0 again; nil: it is 0
}

// begin notes that something is being undone, until done is called.
func (o *order) begin() (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.undoing++; o.settled == nil {
		o.settled = make(chan struct{})
	}
	return sync.OnceFunc(o.end)
}

func (o *order) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.undoing--; o.undoing == 0 {
		close(o.settled)
		o.settled = nil
	}
}

// await waits for what is being undone, or for the end of the lease.
func (l *Lease) await(ctx context.Context, settled <-chan struct{}) error {
	select {
	case <-settled:
	case <-l.done:
	case <-ctx.Done():
		return contextFault(Unavailable, ctx)
	}
	return nil
}

// wait returns a channel that is closed when nothing is being undone any more; nil if
// nothing is.
func (o *order) wait() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.settled
}

// entries is the grants of a re-entrant handle. Its other calls re-enter then, as those do that begin later, and do not wait in the
// queue for what their own handle has.
type entries struct {
	mu      sync.Mutex
	entered chan struct{} // guarded by mu; closed at the next grant; nil: no call waits for that
}

// next returns a channel that is closed at the next grant; nil, if the handle is not re-entrant.
func (e *entries) next(reentrant bool) <-chan struct{} {
	if !reentrant {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.entered == nil {
		e.entered = make(chan struct{})
	}
	return e.entered
}

func (e *entries) note() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.entered != nil {
		close(e.entered)
		e.entered = nil
	}
}
