package conclavegocron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave"
)

// Once wraps the function of a job for [gocron.NewTask]: all processes schedule it for the same times, and for each time f runs to its end
// once, over all processes, by [conclave.Job.Once]. No locker and no elector are needed beside it.
//
//	report := conclavegocron.Once(node.Job("report", conclave.Attempts(3)), time.Hour, makeReport)
//	scheduler.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(report))
//
// The key of a run is the time of its start by this machine's clock, in UTC and rounded down to a multiple of every, such as
// 2026-11-25T02:00:00Z. Processes take a run for the same one if each starts it, by its own clock, in the same such interval. gocron never starts a
// job before its time, so at a time that is a multiple of every a process may be late by nearly all of the interval. every is the time between
// two runs or a part of it, 1 s to 366 days: an hour for a job at each full hour, and also for one at two in the night. Otherwise the task fails
// with [conclave.ErrInvalid]. Unlike with [HoldFor] of a [Locker] it does not matter how long f takes.
//
// A process whose run is under way elsewhere waits for its end, and the task then returns nil; if that has failed or was lost, this process
// runs f for the same key. A process that was down at the time does not run it later, as gocron does not.
//
// The task returns f's error; a [*conclave.JobDoneError] if the attempts of the key are used up, or it is not known whether it has run; and what else
// [conclave.Job.Once] returns. The context that f receives carries the fence, and is cancelled as that of Once.
func Once(job *conclave.Job, every time.Duration, f func(ctx context.Context) error) func(ctx context.Context) error {
	return onceAt(job, every, time.Now, f)
}

const (
	minEvery = time.Second
	maxEvery = 366 * 24 * time.Hour
)

func onceAt(job *conclave.Job, every time.Duration, now func() time.Time, f func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if every < minEvery || every > maxEvery {
			return fmt.Errorf("conclavegocron: once: %w time between two runs: want %v to %v, got %v", conclave.ErrInvalid, minEvery, maxEvery, every)
		}
		key := now().UTC().Truncate(every).Format(time.RFC3339)
		called := false
		err := job.Once(ctx, key, func(ctx context.Context, _ conclave.Fence) error {
			called = true
			return f(ctx)
		})
		var done *conclave.JobDoneError
		if !called && errors.As(err, &done) && done.Run.Result == conclave.JobDone { // else it is f's error, of a job that f requested
			return nil
		}
		return err
	}
}
