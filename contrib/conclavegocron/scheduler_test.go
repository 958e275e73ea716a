package conclavegocron_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/conclave-go/conclave"
)

const invoices = "invoices"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// receive waits for an event.
func receive[E any](t *testing.T, events <-chan E, what string) E {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(3 * time.Minute):
		t.Fatalf("no event within three minutes: %s", what)
		panic("unreachable")
	}
}

// scheduler is a gocron scheduler with one job, and what becomes of the job's runs.
type scheduler struct {
	gocron.Scheduler
	job     gocron.Job
	started chan context.Context // the context that the task receives
	finish  chan struct{}        // lets a run end
	refused chan error           // by the locker
	failed  chan error           // the task's error
	skipped chan struct{}        // by the elector or the locker
}

// newScheduler's job runs each period, and by RunNow; wrap is the Task of a locker or an elector.
func newScheduler(t *testing.T, period time.Duration, opt gocron.SchedulerOption, wrap func(f func(context.Context) error) func(context.Context) error) *scheduler {
	t.Helper()
	s := &scheduler{
		started: make(chan context.Context), finish: make(chan struct{}),
		refused: make(chan error, 100), failed: make(chan error, 100), skipped: make(chan struct{}),
	}
	var err error
	s.Scheduler, err = gocron.NewScheduler(opt, gocron.WithMonitor(s), gocron.WithStopTimeout(time.Minute))
	must(t, err)
	t.Cleanup(func() { must(t, s.Shutdown()) })
	listeners := gocron.WithEventListeners(
		gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { offer(s.refused, err) }),
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { offer(s.failed, err) }),
	)
	s.job, err = s.NewJob(gocron.DurationJob(period), gocron.NewTask(wrap(s.task)), gocron.WithName(invoices), listeners)
	must(t, err)
	s.Start()
	return s
}

// offer drops an error that has no room: as long as a run waits, each period starts another one, and a run that blocks in a
// listener does not end.
func offer(events chan<- error, err error) {
	select {
	case events <- err:
	default:
	}
}

func (s *scheduler) task(ctx context.Context) error {
	select {
	case s.started <- ctx:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-s.finish:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// IncrementJob implements gocron.Monitor.
func (s *scheduler) IncrementJob(_ uuid.UUID, _ string, _ []string, status gocron.JobStatus) {
	if status != gocron.Skip {
		return
	}
	select {
	case s.skipped <- struct{}{}:
	default: // the test does not wait for it
	}
}

// RecordJobTiming implements gocron.Monitor.
func (s *scheduler) RecordJobTiming(_, _ time.Time, _ uuid.UUID, _ string, _ []string) {}

// fence returns the fence that a task's context carries.
func fence(t *testing.T, ctx context.Context) conclave.Fence {
	t.Helper()
	f, ok := conclave.FenceFromContext(ctx)
	if !ok {
		t.Fatal("the context of the task carries no fence")
	}
	return f
}
