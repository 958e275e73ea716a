package conclave

import (
	"context"
	"fmt"
	"sync/atomic"
)

// shutdown is the end of a node or a client. One of several calls carries it out; the others
// wait for a channel, so that none of them depends on the context of the first.
type shutdown struct {
	begun      atomic.Bool
	ended      chan struct{}      // closed when the call that carries it out has done so
	graceful   context.Context    // of the graceful part: done when one of the calls has no more time for it
	cut        context.CancelFunc // ends the graceful part
	hurried    atomic.Bool        // set before cut, if that call's own context was done
	unanswered bool               // set before ended is closed: the graceful part ended before the group had answered
}

func newShutdown() *shutdown {
	s := &shutdown{ended: make(chan struct{})}
	s.graceful, s.cut = context.WithCancel(context.Background())
	return s
}

// carryOut runs the steps of a shutdown if no other call has begun one, and reports whether
// it has. If a step panics, the later ones run all the same: the node must not remain.
func (s *shutdown) carryOut(graceful, stop func()) bool {
	if !s.begun.CompareAndSwap(false, true) {
		return false
	}
	defer close(s.ended)
	defer stop()
	graceful()
	return true
}

// bound has the graceful part end when a call with ctx has no more time for it, which is when
// bounded is done, unless the call returns before and calls release.
func (s *shutdown) bound(ctx, bounded context.Context) (release func() bool) {
	return context.AfterFunc(bounded, func() {
		if ctx.Err() != nil {
			s.hurried.Store(true)
		}
		s.cut()
	})
}

// result is what a call of Close returns.
func (s *shutdown) result(ctx context.Context) error {
	if s.unanswered && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, contextError(ctx))
	}
	return nil
}
