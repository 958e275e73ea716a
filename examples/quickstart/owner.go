package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave"
)

// owner is a handle of a member's to a lock, with calls that are told on the
// timeline.
type owner struct {
	*member
	handle *conclave.FencedLock
	line   *timeline
}

func (s *story) owner(i int, lock string, opts ...conclave.LockOption) *owner {
	return s.ownerAt(s.group.members[i], lock, opts...)
}

func (s *story) ownerAt(m *member, lock string, opts ...conclave.LockOption) *owner {
	return &owner{m, m.node.FencedLock(lock, opts...), s.line}
}

func (o *owner) lock(ctx context.Context) (conclave.Fence, error) {
	fence, err := o.handle.Lock(ctx)
	if err == nil {
		o.line.event(o.name, "Lock", "granted, fence %v", fence)
	}
	return fence, err
}

func (o *owner) unlock(ctx context.Context) error {
	err := o.handle.Unlock(ctx)
	if err == nil && o.handle.Holds() > 0 {
		o.line.event(o.name, "Unlock", "one of its holds; %d left", o.handle.Holds())
	} else if err == nil {
		o.line.event(o.name, "Unlock", "free for the next")
	}
	return err
}

// refused wants a call to have failed, and for this reason.
func (o *owner) refused(call string, err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%s of %s: %v; it has to fail with: %w", call, o.name, err, want)
	}
	o.line.event(o.name, call, "refused: %v", want)
	return nil
}

// waiter is a Lock that waits in the queue.
type waiter struct {
	*owner
	over  chan struct{} // closed when Lock has returned, with what is below
	fence conclave.Fence
	err   error
}

// queue waits for the lock in the background, and returns when it is known to be
// in that place of the queue.
func (o *owner) queue(ctx context.Context, place int) (*waiter, error) {
	w := &waiter{owner: o, over: make(chan struct{})}
	go func() {
		defer close(w.over)
		w.fence, w.err = o.handle.Lock(ctx)
	}()
	for {
		info, err := o.handle.Info(ctx) // what a majority has agreed on
		if err != nil {
			return nil, err
		}
		if info.Waiters == place {
			o.line.event(o.name, "Lock", "waits, number %d in the queue", place)
			return w, nil
		}
	}
}

func (w *waiter) wait() error {
	<-w.over
	return w.err
}

func (w *waiter) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// granted waits for the grant and wants its fence to be larger than the last
// holder's.
func (w *waiter) granted(last conclave.Fence) (conclave.Fence, error) {
	if err := w.wait(); err != nil {
		return 0, err
	}
	w.line.event(w.name, "Lock", "granted, fence %v > %v", w.fence, last)
	if w.fence <= last {
		return 0, fmt.Errorf("%s got fence %v after %v; it has to be larger", w.name, w.fence, last)
	}
	return w.fence, nil
}

// holdsOnce wants the group to know of one hold of this member's and of nobody
// who waits: the request that was on its way when the leader died counted once.
func (o *owner) holdsOnce(ctx context.Context) error {
	info, err := o.handle.Info(ctx)
	if err != nil {
		return err
	}
	status := o.node.Status()
	if info.Node != status.ID || info.Holds != 1 || info.Waiters != 0 {
		return fmt.Errorf("%s does not hold the lock exactly once: %+v", o.name, info)
	}
	o.line.event(o.name, "Info", "exactly one hold, nobody waits; term %d has a new leader", status.Term)
	return nil
}

// write lets a holder write to the ledger.
func (s *story) write(m *member, f conclave.Fence, entry string) error {
	err := s.ledger.book("ledger", f, entry)
	if err == nil {
		s.line.event("ledger", "books", "%q for %s with fence %v", entry, m.name, f)
	}
	return err
}

// comeBack starts a member again. It finds its group, though its port is another
// one, and knows what was agreed while it was away.
func (s *story) comeBack(ctx context.Context, m *member) error {
	err := await(s.line, "for "+m.name+" to catch up", func() error { return s.group.start(ctx, m) })
	if err == nil {
		s.line.event(m.name, "Open", "is back, from its directory, on %s", m.addr)
	}
	return err
}
