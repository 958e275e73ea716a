package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave"
)

// owner is a member's handle to a lock, with calls that print what they do.
type owner struct {
	*member
	handle *conclave.FencedLock
	line   *timeline
}

func (s *story) owner(i int, lock string, opts ...conclave.LockOption) *owner {
	return s.ownerAt(s.group[i], lock, opts...)
}

func (s *story) ownerAt(m *member, lock string, opts ...conclave.LockOption) *owner {
	return &owner{m, m.Node.FencedLock(lock, opts...), s.line}
}

func (o *owner) lock(ctx context.Context) (conclave.Fence, error) {
	fence, err := o.handle.Lock(ctx)
	if err == nil {
		o.line.event(o.Name(), "Lock", "granted, fence %v", fence)
	}
	return fence, err
}

func (o *owner) unlock(ctx context.Context) error {
	err := o.handle.Unlock(ctx)
	if err == nil && o.handle.Holds() > 0 {
		o.line.event(o.Name(), "Unlock", "one hold released, %d left", o.handle.Holds())
	} else if err == nil {
		o.line.event(o.Name(), "Unlock", "released")
	}
	return err
}

// refused checks that a call has failed with the error want.
func (o *owner) refused(call string, err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%s of %s: got error %v, want %w", call, o.Name(), err, want)
	}
	o.line.event(o.Name(), call, "refused: %v", want)
	return nil
}

// waiter is a Lock call that waits in the queue.
type waiter struct {
	*owner
	done  chan struct{} // closed when Lock has returned the two below
	fence conclave.Fence
	err   error
}

// queue calls Lock in the background and returns when the call is at that place
// of the queue.
func (o *owner) queue(ctx context.Context, place int) (*waiter, error) {
	w := &waiter{owner: o, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.fence, w.err = o.handle.Lock(ctx)
	}()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range look.C {
		info, err := o.handle.Info(ctx) // a linearizable read
		if err != nil {
			return nil, err
		}
		if info.Waiters == place {
			break
		}
	}
	o.line.event(o.Name(), "Lock", "waits, number %d in the queue", place)
	return w, nil
}

func (w *waiter) wait() error {
	<-w.done
	return w.err
}

func (w *waiter) isDone() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// granted waits for the grant and checks that its fence is larger than that of
// the last holder.
func (w *waiter) granted(last conclave.Fence) (conclave.Fence, error) {
	if err := w.wait(); err != nil {
		return 0, err
	}
	w.line.event(w.Name(), "Lock", "granted, fence %v > %v", w.fence, last)
	if w.fence <= last {
		return 0, fmt.Errorf("%s got fence %v, want more than %v", w.Name(), w.fence, last)
	}
	return w.fence, nil
}

// holdsOnce checks that this member holds the lock exactly once and that the
// queue is empty: its retried request has taken effect once.
func (o *owner) holdsOnce(ctx context.Context) error {
	info, err := o.handle.Info(ctx)
	if err != nil {
		return err
	}
	status := o.Node.Status()
	if info.Node != status.ID || info.Holds != 1 || info.Waiters != 0 {
		return fmt.Errorf("%s does not hold the lock exactly once: %+v", o.Name(), info)
	}
	o.line.event(o.Name(), "Info", "exactly one hold, no waiters; the new leader's term is %d", status.Term)
	return nil
}

// write writes an entry to the ledger for a holder.
func (s *story) write(m *member, f conclave.Fence, entry string) error {
	err := s.ledger.book("ledger", f, entry)
	if err == nil {
		s.line.event("ledger", "books", "%q for %s with fence %v", entry, m.Name(), f)
	}
	return err
}

// restart opens a member again. It rejoins its group, though its port is a new
// one, and catches up.
func (s *story) restart(ctx context.Context, m *member) error {
	err := await(s.line, "for "+m.Name()+" to catch up", func() error { return s.group.start(ctx, m) })
	if err == nil {
		s.line.event(m.Name(), "Open", "restarted from its directory, on %s", m.Addr)
	}
	return err
}
