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

// logFunc prints one line with the time of day.
type logFunc func(format string, args ...any)

func newLog(w io.Writer) logFunc {
	var mu sync.Mutex // one line at a time
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// worker runs one job after the other, each under a permit of its own.
type worker struct {
	name    string
	permits *conclave.Semaphore
	work    time.Duration
	journal *journal
	logf    logFunc
}

// runWorkers runs the workers until ctx is done or one of them fails, and
// returns the first failure.
func runWorkers(ctx context.Context, node *conclave.Node, o options, journal *journal, logf logFunc) error {
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	permits := node.Semaphore("backend", o.limit) // the owner is the permit, so the workers may share a handle
	var workers sync.WaitGroup
	for i := range o.workers {
		w := &worker{name: fmt.Sprintf("%s/%d", o.cfg.Name, i+1), permits: permits, work: o.work, journal: journal, logf: logf}
		workers.Go(func() { fail(w.run(working)) })
	}
	workers.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(working)
}

// run runs jobs until ctx is done or one of them fails.
func (w *worker) run(ctx context.Context) error {
	for {
		permit, err := w.permits.Acquire(ctx, 1) // FIFO across the group
		if errors.Is(err, conclave.ErrSessionExpired) {
			w.logf("%s: the session ended while waiting; queueing again", w.name)
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

// job runs one job under the permit and releases it. It stops early when ctx is
// done, and when the permit is lost, since another worker may hold it then.
func (w *worker) job(ctx context.Context, permit *conclave.Permit) error {
	fence, err := permit.Fence()
	if err != nil {
		return w.lost(ctx, permit)
	}
	if err := w.journal.write("begin", w.name, fence); err != nil {
		return err
	}
	w.logf("%s works, fence %v", w.name, fence)
	done := time.NewTimer(w.work)
	defer done.Stop()
	select {
	case <-done.C:
	case <-ctx.Done():
	case <-permit.Lost():
		return w.lost(ctx, permit)
	}
	if err := w.journal.write("end", w.name, fence); err != nil {
		return err
	}
	w.logf("%s is done, fence %v", w.name, fence)
	err = permit.Release(ctx)
	if errors.Is(err, conclave.ErrLockOwnershipLost) || ctx.Err() != nil {
		return nil // lost with its session, or released in the background until Close
	}
	return err
}

func (w *worker) lost(ctx context.Context, permit *conclave.Permit) error {
	w.logf("%s LOST its permit and stops working", w.name)
	if err := permit.Release(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		return err
	}
	return nil
}
