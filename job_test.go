package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

var errBackup = errors.New("the disk is full")

// succeed is work that runs to its end.
func succeed(context.Context, conclave.Fence) error { return nil }

func fail(context.Context, conclave.Fence) error { return errBackup }

// wantClosed wants a JobDoneError with a result.
func wantClosed(t *testing.T, err error, result conclave.JobResult) *conclave.JobDoneError {
	t.Helper()
	grouptest.WantError(t, err, conclave.ErrJobDone)
	var done *conclave.JobDoneError
	if !errors.As(err, &done) {
		t.Fatalf("%v is no JobDoneError", err)
	}
	if done.Run.Result != result {
		t.Errorf("the last run is %v, want %v: %v", done.Run.Result, result, err)
	}
	return done
}

// wantRuns wants the results of the retained runs, the last started first.
func wantRuns(t *testing.T, j *conclave.Job, results ...conclave.JobResult) []conclave.JobRun {
	t.Helper()
	info, err := j.Info(t.Context())
	grouptest.Must(t, err)
	if len(info.Runs) != len(results) {
		t.Fatalf("%d runs, want %d: %+v", len(info.Runs), len(results), info)
	}
	for i, r := range info.Runs {
		if r.Result != results[i] {
			t.Errorf("run %d is %v, want %v", i, r.Result, results[i])
		}
	}
	return info.Runs
}

func TestJob_OnceClosesItsKey(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		before := grouptest.MustLock(t, n.FencedLock("x"))
		j := n.Job("report")
		if info, err := j.Info(t.Context()); err != nil || info.Name != "report" || info.Runs != nil {
			t.Errorf("%+v, %v of a job that has never run", info, err)
		}
		var ran conclave.Fence
		grouptest.Must(t, j.Once(t.Context(), "monday", func(ctx context.Context, f conclave.Fence) error {
			ran = f
			if carried, ok := conclave.FenceFromContext(ctx); !ok || carried != f || ctx.Err() != nil {
				t.Errorf("the context has the fence %v, %v, want %v", carried, ctx.Err(), f)
			}
			info, err := j.Info(ctx)
			if err != nil || info.Running != 1 || info.Waiting != 0 || info.Runs[0].Result != conclave.JobRunning || info.Runs[0].Ended != 0 {
				t.Errorf("%+v, %v", info, err)
			}
			return nil
		}))
		if ran <= before {
			t.Errorf("fence %v after %v", ran, before)
		}
		err := n.Job("report").Once(t.Context(), "monday", func(context.Context, conclave.Fence) error {
			t.Error("it runs a second time")
			return nil
		})
		done := wantClosed(t, err, conclave.JobDone)
		if r := done.Run; done.Job != "report" || done.Key != "monday" || r.Key != "monday" || r.Fence != ran || r.Attempt != 1 ||
			r.Node != grouptest.ID(n) || r.Session != grouptest.OwnSession(t, n) {
			t.Errorf("%+v", done)
		}
		if !strings.Contains(err.Error(), `once "report monday": the key is closed: it ran to its end`) {
			t.Error(err)
		}
		grouptest.Must(t, j.Once(t.Context(), "tuesday", succeed))
		grouptest.Must(t, n.Job("other").Once(t.Context(), "monday", succeed))
		runs := wantRuns(t, j, conclave.JobDone, conclave.JobDone)
		if r := runs[1]; r.Key != "monday" || r.Fence != ran || r.Node != grouptest.ID(n) || r.Period != 0 || r.Error != "" {
			t.Errorf("%+v", r)
		}
	})
}

// What has failed runs again, as often as the attempts allow, and then says why not.
func TestJob_OnceFails(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		j := n.Job("report")
		if err := j.Once(t.Context(), "a", fail); err != errBackup { //nolint:errorlint // as it is
			t.Errorf("got %v, want the error of the function", err)
		}
		if r := wantRuns(t, j, conclave.JobFailed)[0]; r.Error != errBackup.Error() || r.Attempt != 1 {
			t.Errorf("%+v", r)
		}
		grouptest.Must(t, j.Once(t.Context(), "a", succeed))
		if r := wantRuns(t, j, conclave.JobDone)[0]; r.Error != "" || r.Attempt != 2 {
			t.Errorf("%+v", r)
		}
		twice, once := n.Job("report", conclave.Attempts(2)), n.Job("report", conclave.AtMostOnce())
		for range 2 {
			if err := twice.Once(t.Context(), "b", fail); !errors.Is(err, errBackup) {
				t.Error(err)
			}
		}
		err := twice.Once(t.Context(), "b", succeed)
		if r := wantClosed(t, err, conclave.JobFailed).Run; r.Attempt != 2 || r.Error != errBackup.Error() {
			t.Errorf("%+v", r)
		}
		if !strings.Contains(err.Error(), "attempt 2 was the last one, and failed") || !strings.Contains(err.Error(), errBackup.Error()) {
			t.Error(err)
		}
		grouptest.Must(t, j.Once(t.Context(), "b", succeed)) // each call has its own bound
		if err := once.Once(t.Context(), "c", fail); !errors.Is(err, errBackup) {
			t.Error(err)
		}
		wantClosed(t, once.Once(t.Context(), "c", succeed), conclave.JobFailed)
	})
}

// The text of an error is cut at a rune.
func TestJob_LongError(t *testing.T) {
	n := grouptest.Alone(t)
	j := n.Job("report")
	text := "x" + strings.Repeat("é", 100)
	_ = j.Once(t.Context(), "a", func(context.Context, conclave.Fence) error { return errors.New(text) })
	if r := wantRuns(t, j, conclave.JobFailed)[0]; r.Error != "x"+strings.Repeat("é", 63) {
		t.Errorf("%q", r.Error)
	}
}

// startOnce starts a Once and returns when it waits behind others.
func startOnce(t *testing.T, j *conclave.Job, key string, f func(context.Context, conclave.Fence) error) *grouptest.Waiting {
	t.Helper()
	before, err := j.Info(t.Context())
	grouptest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w := &grouptest.Waiting{Cancel: cancel, Err: make(chan error, 1)}
	go func() { w.Err <- j.Once(ctx, key, f) }()
	grouptest.AwaitJob(t, j, func(i conclave.JobInfo) bool { return i.Waiting > before.Waiting })
	return w
}

// A call for a key that runs waits for the end of the run, and then runs it if it has failed.
func TestJob_OnceWaits(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		j := n.Job("report")
		var later, last, left *grouptest.Waiting
		runs := 0
		err := j.Once(t.Context(), "a", func(ctx context.Context, _ conclave.Fence) error {
			left = startOnce(t, n.Job("report"), "a", succeed)
			later = startOnce(t, j, "a", func(context.Context, conclave.Fence) error { runs++; return nil })
			last = startOnce(t, j, "a", func(context.Context, conclave.Fence) error { runs++; return nil })
			left.Cancel()
			err := <-left.Err
			grouptest.WantError(t, err, context.Canceled)
			if !strings.Contains(err.Error(), "queued at position 1, held by session") {
				t.Error(err)
			}
			grouptest.Must(t, j.Once(ctx, "b", succeed)) // another key does not wait
			return errBackup
		})
		if !errors.Is(err, errBackup) {
			t.Error(err)
		}
		grouptest.Must(t, <-later.Err)
		if r := wantClosed(t, <-last.Err, conclave.JobDone).Run; runs != 1 || r.Attempt != 2 {
			t.Errorf("%d runs, %+v", runs, r)
		}
	})
}

func TestJob_Invalid(t *testing.T) {
	n := grouptest.Alone(t)
	long := strings.Repeat("x", 513)
	for name, row := range map[string]struct {
		job  *conclave.Job
		key  string
		want error
		text string
	}{
		"empty name":        {n.Job(""), "a", conclave.ErrInvalid, "empty"},
		"long name":         {n.Job(long), "a", conclave.ErrTooLarge, "513"},
		"NUL":               {n.Job("a\x00b"), "a", conclave.ErrInvalid, "NUL"},
		"empty key":         {n.Job("a"), "", conclave.ErrInvalid, "key"},
		"long key":          {n.Job("a"), long, conclave.ErrTooLarge, "key"},
		"NUL in key":        {n.Job("a"), "a\x00", conclave.ErrInvalid, "key"},
		"negative attempts": {n.Job("a", conclave.Attempts(-1)), "a", conclave.ErrInvalid, "attempts"},
		"long time to keep": {n.Job("a", conclave.Keep(3654*24*time.Hour)), "a", conclave.ErrInvalid, "keep"},
	} {
		err := row.job.Once(t.Context(), row.key, succeed)
		grouptest.WantError(t, err, row.want)
		if !strings.Contains(err.Error(), row.text) {
			t.Errorf("%s: %v", name, err)
		}
		if row.key == "a" {
			grouptest.WantError(t, row.job.Every(t.Context(), time.Second, succeed), row.want)
			_, err := row.job.Info(t.Context())
			grouptest.WantError(t, err, row.want)
			grouptest.WantError(t, row.job.Delete(t.Context()), row.want)
		}
	}
	grouptest.WantError(t, n.Job("a").Every(t.Context(), 367*24*time.Hour, succeed), conclave.ErrInvalid)
	grouptest.Must(t, n.Job(long[1:]).Once(t.Context(), long[1:], succeed))
	for _, err := range n.Jobs(t.Context(), "\x00") {
		grouptest.WantError(t, err, conclave.ErrInvalid)
	}
}

// A job retains the largest keys in natural order. A smaller one may have run.
func TestJob_OldKeysAreRefused(t *testing.T) {
	n := grouptest.Alone(t)
	j := n.Job("report")
	key := func(i int) string { return fmt.Sprint("run-", i) }
	for i := 1; i <= 65; i++ {
		grouptest.Must(t, j.Once(t.Context(), key(i), succeed))
	}
	info, err := j.Info(t.Context())
	grouptest.Must(t, err)
	if len(info.Runs) != 64 || info.Runs[0].Key != key(65) || info.Runs[63].Key != key(2) {
		t.Errorf("%d runs, %+v", len(info.Runs), info.Runs)
	}
	err = j.Once(t.Context(), key(1), succeed)
	if done := wantClosed(t, err, conclave.JobForgotten); done.Key != key(1) || done.Run.Fence != 0 {
		t.Errorf("%+v", done)
	}
	if !strings.Contains(err.Error(), "may have run") {
		t.Error(err)
	}
	wantClosed(t, j.Once(t.Context(), "run-0", succeed), conclave.JobForgotten)
	wantClosed(t, j.Once(t.Context(), key(10), succeed), conclave.JobDone)
	grouptest.Must(t, j.Once(t.Context(), key(100), succeed))
	wantClosed(t, j.Once(t.Context(), key(2), succeed), conclave.JobForgotten)
}

// Every goes on whatever its function returns, until its context is done.
func TestJob_Every(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		ctx, cancel := context.WithCancel(t.Context())
		j, ran := n.Job("sweep"), 0
		var fence conclave.Fence
		err := j.Every(ctx, time.Millisecond, func(ctx context.Context, f conclave.Fence) error {
			if carried, _ := conclave.FenceFromContext(ctx); f <= fence || carried != f {
				t.Errorf("fence %v, and %v in the context, after %v", f, carried, fence)
			}
			fence = f
			if ran++; ran == 1 {
				return errBackup
			}
			if ran == 3 {
				cancel()
			}
			return nil
		})
		grouptest.WantError(t, err, context.Canceled)
		if ran != 3 {
			t.Errorf("%d runs", ran)
		}
		runs := wantRuns(t, j, conclave.JobDone, conclave.JobDone, conclave.JobFailed)
		for i, r := range runs {
			if r.Key != "" || r.Period != uint64(3-i) {
				t.Errorf("%+v", r)
			}
		}
		if info, err := j.Info(t.Context()); err != nil || info.Periods != 3 || info.Running != 0 || info.Waiting != 0 {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

func TestJob_Listed(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		for _, name := range []string{"b/2", "a", "b/1"} {
			grouptest.Must(t, n.Job(name).Once(t.Context(), "x", succeed))
		}
		jobs, err := grouptest.Collect(n.Jobs(t.Context(), "b/"))
		if err != nil || len(jobs) != 2 || jobs[0].Name != "b/1" || jobs[1].Name != "b/2" || jobs[0].Runs != nil {
			t.Errorf("%+v, %v", jobs, err)
		}
		jobs, err = grouptest.Collect(n.Jobs(t.Context(), "", conclave.After("b/1")))
		if err != nil || len(jobs) != 1 || jobs[0].Name != "b/2" {
			t.Errorf("%+v, %v", jobs, err)
		}
	})
}

func TestJobResult_String(t *testing.T) {
	for r, want := range map[conclave.JobResult]string{
		conclave.JobRunning: "running", conclave.JobDone: "done", conclave.JobFailed: "failed", conclave.JobLost: "lost",
		conclave.JobForgotten: "forgotten", 0: "JobResult(0)", 6: "JobResult(6)",
	} {
		if r.String() != want {
			t.Errorf("%q, want %q", r, want)
		}
	}
}
