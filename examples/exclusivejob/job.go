package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

const jobName = "report"

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
	node         *conclave.Node
	store        store
	name         string // of this process
	every, takes time.Duration
	logf         logFunc
}

// period returns the number of the present period, by the wall clock. Clocks
// that differ make a run early or late, but never repeat it, since the period is
// the key of the run. Job.Every would need no clock, but its periods follow the
// first run, and not the calendar.
func (j *job) period() int64 { return time.Now().UnixNano() / int64(j.every) }

// start formats the time at which a period starts.
func (j *job) start(p int64) string { return time.Unix(0, p*int64(j.every)).Format("Jan 2 15:04:05") }

// run waits until each period's job is done, by this process or by another one.
// It returns when ctx is done, or with the first error that is not a loss of the
// run.
func (j *job) run(ctx context.Context) error {
	report := j.node.Job(jobName)
	for {
		p := j.period()
		var with conclave.Fence
		// Once waits while another process runs the job, to repeat it if that one
		// crashes.
		err := report.Once(ctx, strconv.FormatInt(p, 10), func(ctx context.Context, fence conclave.Fence) error {
			with = fence
			return j.work(ctx, p, fence)
		})
		var done *conclave.JobDoneError
		switch {
		case err == nil:
			j.logf("finished the job of %s; the store has the result with fence %v", j.start(p), with)
		case errors.As(err, &done) && done.Run.Result == conclave.JobDone:
			j.logf("the job of %s was done by %s", j.start(p), j.nameOf(done.Run.Node))
		case errors.As(err, &done): // this process's clock is far behind
			j.logf("the job of %s does not run: %v", j.start(p), err)
		case errors.Is(err, conclave.ErrLockOwnershipLost), errors.Is(err, conclave.ErrSessionExpired):
			j.logf("LOST the run for the job of %s; queueing again", j.start(p))
			continue
		default:
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

// work does the job. ctx ends if the run is lost. When work returns nil, the
// group records that the period is done. If the process dies between the two, the
// job runs once more, which the store tolerates.
func (j *job) work(ctx context.Context, p int64, fence conclave.Fence) error {
	j.logf("RUNS the job of %s with fence %v", j.start(p), fence)
	j.logf("to crash this process, run: %s", killCommand())
	if err := sleepUntil(ctx, time.Now().Add(j.takes)); err != nil { // the work goes here
		return context.Cause(ctx)
	}
	err := j.store.write(report{Fence: fence, Period: p, By: j.name})
	if errors.Is(err, conclave.ErrStaleFence) { // a later run has written, so this one is lost
		j.logf("the result of %s is REFUSED: %v", j.start(p), err)
	}
	return err
}

// nameOf returns the name of a member.
func (j *job) nameOf(id conclave.MemberID) string {
	for _, m := range j.node.Status().Members {
		if m.ID == id {
			return m.Name
		}
	}
	return id.String() // it has been removed
}

// killCommand returns the command that ends this process without a graceful
// shutdown.
func killCommand() string {
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("taskkill /F /PID %d", os.Getpid())
	}
	return fmt.Sprintf("kill -9 %d", os.Getpid())
}
