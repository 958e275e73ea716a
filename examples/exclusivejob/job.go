package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

const (
	lockName = "jobs/report"
	doneKey  = "jobs/report/done" // the last period that is done, and the process that did it
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

type job struct {
	lock         *conclave.FencedLock
	kv           *conclave.KV
	store        store
	name         string
	every, takes time.Duration
	logf         logFunc
}

// period returns the number of the present period, by the wall clock. Clocks
// that differ make a run early or late, but never repeat it, since the number of
// the last period that is done only grows.
func (j *job) period() int64 { return time.Now().UnixNano() / int64(j.every) }

// start formats the time at which a period starts.
func (j *job) start(p int64) string { return time.Unix(0, p*int64(j.every)).Format("Jan 2 15:04:05") }

// run waits until each period's job is done, by this process or by another one.
// It returns when ctx is done, or with the first error that is not a loss of the
// lock.
func (j *job) run(ctx context.Context) error {
	for {
		p := j.period()
		// Do queues for the lock. TryLock would leave this process free for other
		// work, but then no process would be waiting to repeat the job of a
		// holder that crashed.
		err := j.lock.Do(ctx, func(ctx context.Context, _ conclave.Fence) error { return j.once(ctx, p) })
		switch {
		case errors.Is(err, conclave.ErrLockOwnershipLost), errors.Is(err, conclave.ErrSessionExpired):
			j.logf("LOST the lock for the job of %s; queueing again", j.start(p))
			continue
		case err != nil:
			return err
		}
		if err := sleepUntil(ctx, time.Unix(0, (p+1)*int64(j.every))); err != nil {
			return err
		}
	}
}

func sleepUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// once runs the job unless the period is done. The caller holds the lock, and
// ctx ends if the lock is lost.
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
		j.logf("the job of %s was done by %s", j.start(p), by)
		return nil
	}
	j.logf("RUNS the job of %s with fence %v", j.start(p), fence)
	j.logf("to crash this process, run: %s", killCommand())
	if err := sleepUntil(ctx, time.Now().Add(j.takes)); err != nil { // the work goes here
		return context.Cause(ctx)
	}
	return j.finish(ctx, p, fence)
}

// finish writes the result to the store and then marks the period as done. If
// the process dies between the two, the job runs once more, which the store
// tolerates; in the other order it would not run at all.
func (j *job) finish(ctx context.Context, p int64, fence conclave.Fence) error {
	err := j.store.write(report{Fence: fence, Period: p, By: j.name})
	if err == nil {
		_, err = j.kv.PutFenced(ctx, doneKey, fmt.Appendf(nil, "%d %s", p, j.name), fence)
	}
	if errors.Is(err, conclave.ErrStaleFence) {
		j.logf("the result of %s is REFUSED: %v", j.start(p), err)
		return fmt.Errorf("%w: %w", conclave.ErrLockOwnershipLost, err)
	}
	if err != nil {
		return err
	}
	j.logf("finished the job of %s; the store has the result with fence %v", j.start(p), fence)
	return nil
}

// done returns the last period that is done and the process that did it.
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

// killCommand returns the command that ends this process without a graceful
// shutdown.
func killCommand() string {
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("taskkill /F /PID %d", os.Getpid())
	}
	return fmt.Sprintf("kill -9 %d", os.Getpid())
}
