package conclavegocron_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclavegocron"
)

// A run loses its lock before its function is called, in a listener of gocron, and the next run of the same
// process acquires it. The first run's function must not run beside the second's, under its fence.
func TestTask_LockLostBeforeTheFunction(t *testing.T) {
	group := conclavetest.Start(t, 1)
	node := group.Node(0)
	l := conclavegocron.NewLocker(node)
	listening, proceed := make(chan struct{}), make(chan struct{})
	started, finish, ended := make(chan conclave.Fence, 2), make(chan struct{}), make(chan error, 2)
	first := true
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(l), gocron.WithStopTimeout(time.Minute))
	must(t, err)
	t.Cleanup(func() { must(t, s.Shutdown()) })
	job, err := s.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(l.Task(invoices, func(ctx context.Context) error {
		f, _ := conclave.FenceFromContext(ctx)
		started <- f
		<-finish
		return nil
	})), gocron.WithName(invoices), gocron.WithEventListeners(
		gocron.BeforeJobRuns(func(uuid.UUID, string) {
			if first { // the second run begins after this one listens
				first = false
				close(listening)
				<-proceed
			}
		}),
		gocron.AfterJobRuns(func(uuid.UUID, string) { ended <- nil }),
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { ended <- err }),
	))
	must(t, err)
	s.Start()

	must(t, job.RunNow())
	receive(t, listening, "first run")
	info, err := node.FencedLock(lockName).Info(t.Context())
	must(t, err)
	must(t, node.CloseSession(t.Context(), info.Session))
	awaitFree(t, node)
	must(t, job.RunNow())
	second := receive(t, started, "second run")
	close(proceed)
	select {
	case f := <-started:
		t.Errorf("the first run's function was called with fence %v, beside the second's with %v", f, second)
	case err := <-ended:
		if !errors.Is(err, conclave.ErrLocked) {
			t.Errorf("the first run ended with %v, want ErrLocked", err)
		}
	}
	close(finish)
	must(t, receive(t, ended, "end of the second run"))
}
