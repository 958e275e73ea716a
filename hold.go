package conclave

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// hold is one acquisition under a session, of a lock, of the lead of an
// election, or of permits, until it was given back as often as it was taken.
type hold struct {
	name    string
	session *Session
	fence   Fence
	lost    chan struct{} // closed by the session
	count   int           // guarded by the mu of the handle that has it
}

func newHold(name string, s *Session, f Fence) *hold {
	return &hold{name: name, session: s, fence: f, lost: make(chan struct{}), count: 1}
}

// isLost looks at the clock by way of the session.
func (h *hold) isLost() bool {
	if h.session.alive() != nil {
		return true
	}
	select {
	case <-h.lost:
		return true
	default:
		return false
	}
}

// handBack sends the command that gives the hold back, which is then pursued
// until it is done or the session has ended. It waits for that until ctx ends.
func (h *hold) handBack(ctx context.Context, cmd *wire.Command) error {
	answered := make(chan answer, 1)
	h.session.node.pursue(cmd, func(a answer) { answered <- a })
	select {
	case a := <-answered:
		return handedBack(a)
	case <-h.session.done:
		// It may have been released in time, but nobody can tell any more
		// whether it was ours until then.
		return ErrLockOwnershipLost
	case <-ctx.Done():
		return because(fmt.Errorf("%w yet; the release is pursued", ErrUnknown), ctx)
	}
}

func handedBack(a answer) error {
	err := a.fault()
	if errors.Is(err, ErrNotHeld) || errors.Is(err, ErrSessionExpired) {
		return ErrLockOwnershipLost // we held it, so it was taken from us
	}
	return err
}

// guard derives a context that ends when ctx does, and, with the cause
// ErrLockOwnershipLost, when lost is closed. stop has to be called.
func guard(ctx context.Context, lost <-chan struct{}) (guarded context.Context, stop func()) {
	guarded, cancel := context.WithCancelCause(ctx)
	finished := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-lost:
			cancel(ErrLockOwnershipLost)
		case <-finished:
		}
	})
	return guarded, func() {
		close(finished)
		watching.Wait()
		cancel(nil)
	}
}
