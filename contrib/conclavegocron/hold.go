package conclavegocron

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/conclave-go/conclave"
)

// hold is one hold of a lock.
type hold struct {
	lock  *conclave.FencedLock
	fence conclave.Fence
	over  context.Context // done once the hold was lost or released, with the cause
	end   context.CancelCauseFunc
	busy  atomic.Bool // a function of Locker.Task runs under it
}

// newHold starts a goroutine, which ends with the hold.
func newHold(lock *conclave.FencedLock, fence conclave.Fence) *hold {
	h := &hold{lock: lock, fence: fence}
	h.over, h.end = context.WithCancelCause(context.Background())
	go h.watch(lock.Lost())
	return h
}

func (h *hold) watch(lost <-chan struct{}) {
	select {
	case <-lost:
		h.end(conclave.ErrLockOwnershipLost)
	case <-h.over.Done():
	}
}

// run calls f with a context that carries the fence and ends with the hold.
func (h *hold) run(ctx context.Context, f func(ctx context.Context) error) error {
	if _, err := h.lock.Fence(); err != nil { // compares the clock with the lease
		return err
	}
	ctx, cancel := context.WithCancelCause(conclave.ContextWithFence(ctx, h.fence))
	defer cancel(nil)
	stop := context.AfterFunc(h.over, func() { cancel(context.Cause(h.over)) })
	defer stop()
	err := f(ctx)
	if cause := context.Cause(h.over); errors.Is(cause, conclave.ErrLockOwnershipLost) && !errors.Is(err, cause) {
		err = errors.Join(err, cause)
	}
	return err
}
