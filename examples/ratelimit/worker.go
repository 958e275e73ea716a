package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// teller prints a line with the time of day.
type teller func(format string, args ...any)

func newTeller(w io.Writer) teller {
	var mu sync.Mutex // one line at a time
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// worker does one job after the other, each under a permit of its own.
type worker struct {
	name  string
	slots *conclave.Semaphore
	work  time.Duration
	book  *journal
	say   teller
}

// employ has the workers work until ctx ends or one of them cannot go on, and
// returns why that one could not.
func employ(ctx context.Context, node *conclave.Node, o options, book *journal, say teller) error {
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	slots := node.Semaphore("backend", o.limit) // a handle is no owner, so one is enough for all
	var team sync.WaitGroup
	for i := range o.workers {
		w := &worker{name: fmt.Sprintf("%s/%d", o.cfg.Name, i+1), slots: slots, work: o.work, book: book, say: say}
		team.Go(func() { fail(w.live(working)) })
	}
	team.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(working)
}

// live works until ctx ends or something is the matter, which it returns.
func (w *worker) live(ctx context.Context) error {
	for {
		permit, err := w.slots.Acquire(ctx, 1) // first come, first served, over all processes
		if errors.Is(err, conclave.ErrSessionExpired) {
			w.say("%s: the session ended while waiting; queueing up again", w.name)
			continue
		}
		if err != nil {
			return err
		}
		if err := w.job(ctx, permit); err != nil {
			return err
		}
	}
}

// job works under the permit and gives it back. It ends early when ctx ends, and
// when the permit is lost, since somebody else may have it then.
func (w *worker) job(ctx context.Context, permit *conclave.Permit) error {
	fence, err := permit.Fence()
	if err != nil {
		return w.lost(ctx, permit)
	}
	if err := w.book.write("begin", w.name, fence); err != nil {
		return err
	}
	w.say("%s works, fence %v", w.name, fence)
	done := time.NewTimer(w.work)
	defer done.Stop()
	select {
	case <-done.C:
	case <-ctx.Done():
	case <-permit.Lost():
		return w.lost(ctx, permit)
	}
	if err := w.book.write("end", w.name, fence); err != nil {
		return err
	}
	w.say("%s is done, fence %v", w.name, fence)
	err = permit.Release(ctx)
	if errors.Is(err, conclave.ErrLockOwnershipLost) || ctx.Err() != nil {
		return nil // lost with its session, or pursued in the background until Close
	}
	return err
}

func (w *worker) lost(ctx context.Context, permit *conclave.Permit) error {
	w.say("%s has LOST its permit and stops working", w.name)
	if err := permit.Release(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		return err
	}
	return nil
}
