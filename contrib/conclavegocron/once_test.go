package conclavegocron_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclavegocron"
)

// Three processes with clocks that differ run a job once at each of its times.
func TestOnce_OneOfThree(t *testing.T) {
	group := conclavetest.Start(t, 3)
	var runs atomic.Int64
	for hour := range 3 {
		at := time.Date(2026, 11, 25, hour, 0, 0, 0, time.UTC)
		ended := make(chan error)
		for i := range 3 {
			task := conclavegocron.OnceAt(group.Node(i).Job("report"), time.Hour, func() time.Time { return at.Add(time.Duration(i) * 20 * time.Minute) },
				func(ctx context.Context) error {
					if _, ok := conclave.FenceFromContext(ctx); !ok {
						t.Error("no fence")
					}
					runs.Add(1)
					return nil
				})
			go func() { ended <- task(t.Context()) }()
		}
		for range 3 {
			must(t, receive(t, ended, "end of a task"))
		}
		if n := int(runs.Load()); n != hour+1 {
			t.Errorf("%d runs at %d times", n, hour+1)
		}
	}
}

// A run that fails is repeated by another process, as often as the job's attempts allow.
func TestOnce_Fails(t *testing.T) {
	group := conclavetest.Start(t, 2)
	now := func() time.Time { return time.Date(2026, 11, 25, 2, 0, 0, 0, time.FixedZone("", 3600)) }
	broken := errors.New("no disk")
	task := func(i int, err error) func(context.Context) error {
		return conclavegocron.OnceAt(group.Node(i).Job("report", conclave.Attempts(2)), time.Hour, now, func(context.Context) error { return err })
	}
	if err := task(0, broken)(t.Context()); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := task(1, broken)(t.Context()); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := task(0, nil)(t.Context()); !errors.Is(err, conclave.ErrJobDone) {
		t.Error(err)
	}
	info, err := group.Node(0).Job("report").Info(t.Context())
	must(t, err)
	if len(info.Runs) != 1 || info.Runs[0].Key != "2026-11-25T01:00:00Z" || info.Runs[0].Attempt != 2 {
		t.Errorf("%+v", info.Runs)
	}
}

// An error of f that says that another job has run is f's error.
func TestOnce_FailsWithAnotherJobDone(t *testing.T) {
	n := conclavetest.Start(t, 1).Node(0)
	inner := func(ctx context.Context) error {
		return n.Job("inner").Once(ctx, "a", func(context.Context, conclave.Fence) error { return nil })
	}
	must(t, inner(t.Context()))
	err := conclavegocron.Once(n.Job("outer"), time.Hour, inner)(t.Context())
	var done *conclave.JobDoneError
	if !errors.As(err, &done) || done.Job != "inner" {
		t.Errorf("%v: want the error of f", err)
	}
	info, err := n.Job("outer").Info(t.Context())
	must(t, err)
	if len(info.Runs) != 1 || info.Runs[0].Result != conclave.JobFailed {
		t.Errorf("%+v", info.Runs)
	}
}

// gocron runs the task, with nothing but it.
func TestOnce_Scheduled(t *testing.T) {
	group := conclavetest.Start(t, 2)
	now := func() time.Time { return time.Date(2026, 11, 25, 2, 0, 0, 0, time.UTC) }
	ran, tasks := make(chan int, 2), make(chan error, 2)
	for i := range 2 {
		s, err := gocron.NewScheduler()
		must(t, err)
		t.Cleanup(func() { must(t, s.Shutdown()) })
		once := conclavegocron.OnceAt(group.Node(i).Job("report"), time.Hour, now, func(context.Context) error {
			ran <- i
			return nil
		})
		_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func(ctx context.Context) { tasks <- once(ctx) }))
		must(t, err)
		s.Start()
	}
	for range 2 {
		must(t, receive(t, tasks, "end of a task"))
	}
	if len(ran) != 1 {
		t.Errorf("%d runs", len(ran))
	}
}

func TestOnce_Invalid(t *testing.T) {
	for _, every := range []time.Duration{0, 15, -time.Hour, 367 * 24 * time.Hour} {
		if err := conclavegocron.Once(nil, every, nil)(t.Context()); !errors.Is(err, conclave.ErrInvalid) {
			t.Errorf("%v: %v", every, err)
		}
	}
}
