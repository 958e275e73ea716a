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

// lockName is the lock of the job, by the default prefix.
const lockName = "gocron/" + invoices

func withLocker(t *testing.T, locks conclave.Locks, opts ...conclavegocron.Option) *scheduler {
	t.Helper()
	l := conclavegocron.NewLocker(locks, opts...)
	return newScheduler(t, time.Hour, gocron.WithDistributedLocker(l), func(f func(context.Context) error) func(context.Context) error {
		return l.Task(invoices, f)
	})
}

// awaitFree waits in the lock's queue, and returns the fence.
func awaitFree(t *testing.T, node *conclave.Node) conclave.Fence {
	t.Helper()
	lock := node.FencedLock(lockName)
	f, err := lock.Lock(t.Context())
	must(t, err)
	must(t, lock.Unlock(t.Context()))
	return f
}

func TestLocker_RunsOnOneMember(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a, b := withLocker(t, group.Node(0)), withLocker(t, group.Node(1))

	must(t, a.job.RunNow())
	first := fence(t, receive(t, a.started, "run on a"))
	must(t, b.job.RunNow())
	if err := receive(t, b.refused, "refusal on b"); !errors.Is(err, conclave.ErrLocked) {
		t.Errorf("b was refused with %v, want ErrLocked", err)
	}
	must(t, a.job.RunNow()) // a second run of the same process
	if err := receive(t, a.refused, "refusal on a"); !errors.Is(err, conclave.ErrLocked) {
		t.Errorf("a was refused with %v, want ErrLocked", err)
	}

	a.finish <- struct{}{}
	between := awaitFree(t, group.Node(2))
	must(t, b.job.RunNow())
	second := fence(t, receive(t, b.started, "run on b"))
	if !(first < between && between < second) {
		t.Errorf("fences %v, %v, %v, want each larger than the one before", first, between, second)
	}
	b.finish <- struct{}{}
}

func TestLocker_ShutdownReleases(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a := withLocker(t, group.Node(0))
	must(t, a.job.RunNow())
	receive(t, a.started, "run on a")
	must(t, a.Shutdown()) // cancels the context of the job, with which gocron calls Unlock too
	awaitFree(t, group.Node(1))
}

func TestLocker_SessionClosedDuringRun(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a := withLocker(t, group.Node(0))
	must(t, a.job.RunNow())
	ctx := receive(t, a.started, "run on a")
	former := fence(t, ctx)

	info, err := group.Node(1).FencedLock(lockName).Info(t.Context())
	must(t, err)
	must(t, group.Node(1).CloseSession(t.Context(), info.Session))

	receive(t, ctx.Done(), "cancellation of the run")
	if cause := context.Cause(ctx); !errors.Is(cause, conclave.ErrLockOwnershipLost) {
		t.Errorf("the run was cancelled because of %v, want ErrLockOwnershipLost", cause)
	}
	if err := receive(t, a.failed, "failure of the run"); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		t.Errorf("the run failed with %v, want ErrLockOwnershipLost", err)
	}
	if f := awaitFree(t, group.Node(1)); f <= former {
		t.Errorf("granted %v after %v", f, former)
	}
}

func TestLocker_HolderKilledDuringRun(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a, b := withLocker(t, group.Node(0)), withLocker(t, group.Node(1))
	must(t, a.job.RunNow())
	ctx := receive(t, a.started, "run on a")
	group.Kill(0)
	receive(t, ctx.Done(), "cancellation of the run")

	awaitFree(t, group.Node(2)) // after the TTL of the killed node's session
	must(t, b.job.RunNow())
	if next := fence(t, receive(t, b.started, "run on b")); next <= fence(t, ctx) {
		t.Errorf("granted %v after %v", next, fence(t, ctx))
	}
	b.finish <- struct{}{}
}

func TestLocker_HoldForOutlastsRun(t *testing.T) {
	group := conclavetest.Start(t, 3)
	session, err := group.Node(0).NewSession(t.Context(), nil)
	must(t, err)
	a := withLocker(t, session, conclavegocron.HoldFor(time.Hour))
	b := withLocker(t, group.Node(1))
	must(t, a.job.RunNow())
	receive(t, a.started, "run on a")
	a.finish <- struct{}{}
	must(t, a.Shutdown()) // the run is over, and gocron has called Unlock

	must(t, b.job.RunNow())
	if err := receive(t, b.refused, "refusal on b"); !errors.Is(err, conclave.ErrLocked) {
		t.Errorf("b was refused with %v, want ErrLocked", err)
	}
	must(t, session.Close(t.Context()))
	must(t, b.job.RunNow())
	receive(t, b.started, "run on b")
	b.finish <- struct{}{}
}

func TestLocker_HoldForEnds(t *testing.T) {
	group := conclavetest.Start(t, 1)
	const d = 200 * time.Millisecond
	l := conclavegocron.NewLocker(group.Node(0), conclavegocron.HoldFor(d), conclavegocron.Prefix(""))
	began := time.Now()
	lock, err := l.Lock(t.Context(), lockName)
	must(t, err)
	must(t, lock.Unlock(t.Context()))
	awaitFree(t, group.Node(0))
	if took := time.Since(began); took < d {
		t.Errorf("the lock was free after %v, want at least %v", took, d)
	}
	// The release is no call that has failed: the alert ConclaveCallsFail would come.
	for unlocks := map[conclave.CallResult]uint64{}; unlocks[conclave.ResultOK] < 2; {
		time.Sleep(time.Millisecond) // nothing reports that a call is counted
		for _, c := range group.Node(0).Metrics().Calls {
			if c.Kind == conclave.CallUnlock {
				unlocks = c.Results
			}
		}
		if unlocks[conclave.ResultUnknown] > 0 {
			t.Fatalf("unlocks: %v", unlocks)
		}
	}
}

func TestLocker_TimeoutWithoutQuorum(t *testing.T) {
	group := conclavetest.Start(t, 3)
	a := withLocker(t, group.Node(0), conclavegocron.Timeout(100*time.Millisecond))
	group.Partition([]int{0})
	must(t, a.job.RunNow())
	if err := receive(t, a.refused, "refusal on a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("refused with %v, want DeadlineExceeded", err)
	}
	group.Heal()
	awaitFree(t, group.Node(1)) // what the partitioned member may have queued is withdrawn
}

func TestTask_OfAnotherName(t *testing.T) {
	group := conclavetest.Start(t, 1)
	l := conclavegocron.NewLocker(group.Node(0))
	a := newScheduler(t, time.Hour, gocron.WithDistributedLocker(l), func(f func(context.Context) error) func(context.Context) error {
		return l.Task("another", f)
	})
	must(t, a.job.RunNow())
	if err := receive(t, a.failed, "failure of the run"); !errors.Is(err, conclave.ErrNotHeld) {
		t.Errorf("the run failed with %v, want ErrNotHeld", err)
	}
}
