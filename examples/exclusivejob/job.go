//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

const (
	jobName = "jobs/report"      // of the lock
	doneKey = "jobs/report/done" // the period that is done, and by whom
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

type job struct {
	lock         *conclave.FencedLock
	kv           *conclave.KV
	store        store
	name         string
	every, takes time.Duration
	say          teller
}

// period numbers the periods by the wall clock. Where clocks differ, a run is
// early or late by as much; but it is not done twice, since numbers only grow.
func (j *job) period() int64 { return time.Now().UnixNano() / int64(j.every) }

// due is when a period begins, for people.
func (j *job) due(p int64) string { return time.Unix(0, p*int64(j.every)).Format("Jan 2 15:04:05") }

// live sees each period done, by this process or by another, until ctx ends or
// something other than a loss is the matter.
func (j *job) live(ctx context.Context) error {
	for {
		p := j.period()
		// Do waits for the lock. With TryLock a process would be free for other
		// work while another one runs, but then nobody would be there to run what
		// that one leaves undone when it dies.
		err := j.lock.Do(ctx, func(ctx context.Context) error { return j.once(ctx, p) })
		switch {
		case errors.Is(err, conclave.ErrLockOwnershipLost), errors.Is(err, conclave.ErrSessionExpired):
			j.say("LOST the job of %s; another one does it, or this one again", j.due(p))
			continue
		case err != nil:
			return err
		}
		if err := until(ctx, time.Unix(0, (p+1)*int64(j.every))); err != nil {
			return err
		}
	}
}

func until(ctx context.Context, when time.Time) error {
	timer := time.NewTimer(time.Until(when))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// once runs the job unless the period is done. It has the lock, and ctx ends when
// that is lost.
func (j *job) once(ctx context.Context, p int64) error {
	fence, err := j.lock.Fence()
	if err != nil {
		return err
	}
	done, by, err := j.done(ctx)
	if err != nil {
		return err
	}
	if done >= p {
		j.say("the job of %s was done by %s", j.due(p), by)
		return nil
	}
	j.say("RUNS the job of %s with fence %v", j.due(p), fence)
	if err := until(ctx, time.Now().Add(j.takes)); err != nil { // here one would do the work
		return context.Cause(ctx)
	}
	return j.finish(ctx, p, fence)
}

// finish hands the result to the store, and then remembers that the period is
// done. A process that dies between the two leaves the period to be run once more,
// which the store bears; in the other order it would not be run at all.
func (j *job) finish(ctx context.Context, p int64, fence conclave.Fence) error {
	err := j.store.write(report{Fence: fence, Period: p, By: j.name})
	if err == nil {
		_, err = j.kv.PutFenced(ctx, doneKey, fmt.Appendf(nil, "%d %s", p, j.name), fence)
	}
	if errors.Is(err, conclave.ErrStaleFence) {
		j.say("the result of %s is REFUSED: %v", j.due(p), err)
		return fmt.Errorf("%w: %w", conclave.ErrLockOwnershipLost, err)
	}
	if err != nil {
		return err
	}
	j.say("is done with the job of %s; the store has the result with fence %v", j.due(p), fence)
	return nil
}

// done returns the last period that is done, and by whom.
func (j *job) done(ctx context.Context) (period int64, by string, err error) {
	e, err := j.kv.Get(ctx, doneKey)
	if errors.Is(err, conclave.ErrKeyNotFound) {
		return -1, "", nil
	}
	if err != nil {
		return 0, "", err
	}
	number, by, _ := strings.Cut(string(e.Value), " ")
	period, err = strconv.ParseInt(number, 10, 64)
	return period, by, err
}
