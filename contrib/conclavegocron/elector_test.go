package conclavegocron_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclavegocron"
)

// period is how often the job of an elected process runs.
const period = 20 * time.Millisecond

// elected is a process with a scheduler that runs jobs while it leads.
type elected struct {
	*scheduler
	elector *conclavegocron.Elector
	resign  context.CancelFunc
	ended   chan error // the result of Run
}

func withElector(t *testing.T, locks conclave.Locks) *elected {
	t.Helper()
	e := &elected{elector: conclavegocron.NewElector(locks, "cron leader", conclave.WithLabel(t.Name())), ended: make(chan error, 1)}
	var ctx context.Context
	ctx, e.resign = context.WithCancel(context.Background())
	t.Cleanup(e.resign)
	go func() { e.ended <- e.elector.Run(ctx) }()
	e.scheduler = newScheduler(t, period, gocron.WithDistributedElector(e.elector), e.elector.Task)
	return e
}

func TestElector_RunReleasesWhenCancelled(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a := withElector(t, group.Node(0))
	ctx := receive(t, a.started, "run on a")
	b := withElector(t, group.Node(1))
	receive(t, b.skipped, "skipped run on b")
	if err := b.elector.IsLeader(t.Context()); !errors.Is(err, conclave.ErrNotHeld) {
		t.Errorf("IsLeader on b: %v, want ErrNotHeld", err)
	}

	a.resign()
	receive(t, ctx.Done(), "cancellation of the run on a")
	if err := receive(t, a.ended, "end of Run"); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v, want Canceled", err)
	}
	next := receive(t, b.started, "run on b")
	if fence(t, next) <= fence(t, ctx) {
		t.Errorf("granted %v after %v", fence(t, next), fence(t, ctx))
	}
	b.finish <- struct{}{}
	receive(t, a.skipped, "skipped run on a")
}

func TestElector_LeaderPartitioned(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a := withElector(t, group.Node(0))
	ctx := receive(t, a.started, "run on a")
	b := withElector(t, group.Node(1))

	group.Partition([]int{0})
	receive(t, ctx.Done(), "cancellation of the run on a")
	if cause := context.Cause(ctx); !errors.Is(cause, conclave.ErrLockOwnershipLost) {
		t.Errorf("the run was cancelled because of %v, want ErrLockOwnershipLost", cause)
	}
	receive(t, a.skipped, "skipped run on a")

	next := receive(t, b.started, "run on b")
	if f, err := b.elector.Fence(); err != nil || f != fence(t, next) || f <= fence(t, ctx) {
		t.Errorf("fence %v, %v; the task has %v, the former leader had %v", f, err, fence(t, next), fence(t, ctx))
	}
	group.Heal()
	b.resign() // and a, which competes again, leads next
	later := receive(t, a.started, "run on a")
	if fence(t, later) <= fence(t, next) {
		t.Errorf("granted %v after %v", fence(t, later), fence(t, next))
	}
	a.finish <- struct{}{}
}

func TestElector_NodeClosed(t *testing.T) {
	group := conclavetest.Start(t, 1)
	a := withElector(t, group.Node(0))
	receive(t, a.started, "run on a")
	group.Kill(0)
	if err := receive(t, a.ended, "end of Run"); !errors.Is(err, conclave.ErrClosed) {
		t.Errorf("Run: %v, want ErrClosed", err)
	}
}
