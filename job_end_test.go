package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A function that does not return has failed, and what ended it goes on.
func TestJob_FunctionDoesNotReturn(t *testing.T) {
	n := grouptest.Alone(t)
	j := n.Job("report")
	call := map[string]func(context.Context, func(context.Context, conclave.Fence) error) error{
		"once": func(ctx context.Context, f func(context.Context, conclave.Fence) error) error {
			return j.Once(ctx, "a", f)
		},
		"every": func(ctx context.Context, f func(context.Context, conclave.Fence) error) error {
			return n.Job("other").Every(ctx, time.Millisecond, f)
		},
	}
	for name, run := range call {
		var panicked any
		func() {
			defer func() { panicked = recover() }()
			_ = run(t.Context(), func(context.Context, conclave.Fence) error { panic("a bug") })
		}()
		if panicked != "a bug" {
			t.Errorf("%s: the caller gets %v", name, panicked)
		}
		var ended sync.WaitGroup
		ended.Go(func() {
			_ = run(t.Context(), func(context.Context, conclave.Fence) error { runtime.Goexit(); return nil })
			t.Errorf("%s: it returns to a goroutine that has ended", name)
		})
		ended.Wait()
	}
	if r := wantRuns(t, j, conclave.JobFailed)[0]; r.Attempt != 2 || !strings.Contains(r.Error, "panicked") {
		t.Errorf("%+v", r)
	}
	wantRuns(t, n.Job("other"), conclave.JobFailed, conclave.JobFailed)
}

// A call that is not to run f leaves no trace, and no attempt counts.
func TestJob_ContextEnds(t *testing.T) {
	n := grouptest.Alone(t)
	j := n.Job("report", conclave.AtMostOnce())
	grouptest.WantError(t, j.Once(grouptest.Expired(), "a", succeed), context.Canceled)
	wantRuns(t, j)
	ctx, cancel := context.WithCancel(t.Context())
	err := j.Once(ctx, "a", func(ctx context.Context, _ conclave.Fence) error {
		cancel()
		<-ctx.Done()
		return nil // it has done all
	})
	grouptest.Must(t, err)
	wantRuns(t, j, conclave.JobDone)
}

// An attempt counts if f was called, and only then, whenever the context ends.
func TestJob_AttemptCountsOnceCalled(t *testing.T) {
	n := grouptest.Alone(t)
	j := n.Job("report", conclave.AtMostOnce())
	left := 0
	for i := range 50 {
		key := fmt.Sprint("run-", i)
		ctx, cancel := context.WithCancel(t.Context())
		var called, again atomic.Bool
		time.AfterFunc(time.Duration(i)*20*time.Microsecond, cancel)
		err := j.Once(ctx, key, func(context.Context, conclave.Fence) error { called.Store(true); return nil })
		if called.Load() {
			grouptest.Must(t, err)
		} else {
			left++
			grouptest.WantError(t, err, context.Canceled)
		}
		err = j.Once(t.Context(), key, func(context.Context, conclave.Fence) error { again.Store(true); return nil })
		if called.Load() {
			wantClosed(t, err, conclave.JobDone)
		} else {
			grouptest.Must(t, err)
		}
		if called.Load() == again.Load() {
			t.Errorf("called: %v, and %v", called.Load(), again.Load())
		}
	}
	if left == 0 {
		t.Error("no context ended in time: the test tests too little")
	}
}

// The end of a session ends its runs, and what waits for others.
func TestJob_SessionEnds(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		for name, call := range map[string]func(j *conclave.Job, f func(context.Context, conclave.Fence) error) error{
			"once": func(j *conclave.Job, f func(context.Context, conclave.Fence) error) error {
				return j.Once(t.Context(), "a", f)
			},
			"every": func(j *conclave.Job, f func(context.Context, conclave.Fence) error) error {
				return j.Every(t.Context(), time.Hour, f)
			},
		} {
			s := grouptest.MustSession(t, n, grouptest.Lasting())
			j := s.Job(name)
			err := call(j, func(ctx context.Context, _ conclave.Fence) error {
				grouptest.Must(t, n.CloseSession(ctx, s.ID()))
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, conclave.ErrLockOwnershipLost) {
					t.Errorf("%s: the cause is %v", name, cause)
				}
				return nil
			})
			want := conclave.ErrLockOwnershipLost
			if name == "every" {
				want = conclave.ErrSessionExpired
			}
			grouptest.WantError(t, err, want)
			grouptest.WantError(t, call(j, succeed), conclave.ErrSessionExpired)
			wantRuns(t, n.Job(name), conclave.JobLost)
		}
		grouptest.Must(t, n.Job("once").Once(t.Context(), "a", succeed))
	})
}

func TestJob_Closed(t *testing.T) {
	n := grouptest.Alone(t)
	j := n.Job("report")
	grouptest.Kill(n)
	grouptest.WantError(t, j.Once(t.Context(), "a", succeed), conclave.ErrClosed)
	grouptest.WantError(t, j.Every(t.Context(), time.Second, succeed), conclave.ErrClosed)
	_, err := j.Info(t.Context())
	grouptest.WantError(t, err, conclave.ErrClosed)
}
