package client

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
)

// lifetime is whether a client is usable: until it is closing, or has stopped.
type lifetime struct {
	cause   error                 // Config.Closed
	failure atomic.Pointer[error] // why the group is about to become unreachable; nil: on purpose, or it is not

	mu      sync.Mutex // also of the table of leases: a lease does not enter it behind the end of all
	closing bool       // guarded by mu

	done chan struct{} // closed by Stopped
	why  error         // set before done is closed
}

// BeginShutdown refuses every further use. The leases live on until EndLeases, and
// the registration until Deregister.
func (l *lifetime) BeginShutdown() {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
}

// Usable returns a Fault of kind Closed once the client is closing or has stopped.
func (l *lifetime) Usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return l.closed()
	}
	select {
	case <-l.done:
		return l.stopped()
	default:
		return nil
	}
}

// Turn takes the only token of a channel: calls of one handle that wait for each other put it there. It does not look at ctx if none of
// them is under way.
func (l *lifetime) Turn(ctx context.Context, token chan struct{}) error {
	select {
	case token <- struct{}{}:
		return nil
	default:
	}
	select {
	case token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return contextFault(Interrupted, ctx)
	case <-l.done:
		return l.stopped()
	}
}

// closed is the fault of a request after BeginShutdown.
func (l *lifetime) closed() error {
	cause := l.cause
	if failure := l.failure.Load(); failure != nil {
		cause = *failure
	}
	return &Fault{Kind: Closed, Cause: cause}
}

// stopped is the fault of a request after Stopped.
func (l *lifetime) stopped() error { return &Fault{Kind: Closed, Cause: cmp.Or(l.why, l.cause)} }
