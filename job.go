package conclave

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Job is work that one process of the group does at a time for each key. [Job.Once] runs it to its end at most once for a key, over
// all processes, and [Job.Every] once in each period. The group retains the last runs with their results: [Job.Info].
//
// A run is a hold under a session, like that of a lock, with a fence larger than all before. It begins when no other run
// of the key is under way; requests wait in FIFO order across the group. That it has run to its end is recorded by the same entry of the log that
// ends the hold, so no other process begins in between. A run whose session ends is lost: after the lock-delay of the
// session another one may begin.
//
// The process of a lost run may be paused, or may not react to the end of its context, and go on beside the next run. Then
// it may do all of its work, and so may the next one. The group records neither twice, and only the resource can refuse
// the late one: send it the fence.
//
// Runs of different keys may overlap, and overlap with one of Every. So a [Guard] that checks fences by the name of the job
// refuses the one of two such runs that began earlier, though it is not lost. Where that is not wanted, put the key into the guard's
// name.
//
// A Job is no owner: each call of Once or Every is one of its own, on one handle as on two. An idle Job
// costs nothing and need not be closed. What the group retains of it remains until [Job.Delete]. Jobs have names of their own, apart from those of locks and elections. All methods
// are safe for concurrent use.
type Job struct {
	group    *Group
	lease    *client.Lease // nil: the node's own
	name     string
	bad      error // what is wrong with the name or an option
	attempts uint32
	keep     time.Duration
}

// JobOption configures a [Job]. It applies to what this handle requests: give all users of a job the same options.
type JobOption interface{ applyJob(*Job) }

type jobOption func(*Job)

func (f jobOption) applyJob(j *Job) { f(j) }

const (
	maxKeep  = time.Duration(machine.MaxKeep)
	maxEvery = time.Duration(machine.MaxEvery)
)

// Attempts has [Job.Once] run a key n times at most, if it fails or is lost: then ErrJobDone. A run counts from its
// start, so one whose process dies counts; one that ended before f was called does not. 0, the default, is without
// bound. It does not change what [Job.Every] does.
func Attempts(n int) JobOption {
	return jobOption(func(j *Job) {
		if n < 0 || n > math.MaxInt32 {
			j.bad = fmt.Errorf("%w attempts: want 0 (without bound) to %d, got %d", ErrInvalid, math.MaxInt32, n)
			return
		}
		j.attempts = uint32(n)
	})
}

// AtMostOnce has [Job.Once] begin a key once at most: a run that fails or is lost is not repeated. It is Attempts(1).
func AtMostOnce() JobOption { return Attempts(1) }

// Keep has [Job.Once] refuse a key d after the end of its last run, 1 ms to 3,653 days by group time, also if that failed
// or was lost and attempts are left. 0, the default, is not by time. The key is forgotten then, with the keys before it that
// are not retained: see [Job.Once]. It does not change what [Job.Every] does.
//
// A request that comes while the lock-delay of a lost run lasts does not heed it: it waits for the end of that, and the key runs.
func Keep(d time.Duration) JobOption {
	return jobOption(func(j *Job) {
		if d != 0 && d < minDuration || d > maxKeep {
			j.bad = fmt.Errorf("%w time to keep: want 0 (not by time) or %v to %v, got %v", ErrInvalid, minDuration, maxKeep, d)
			return
		}
		j.keep = d
	})
}

// Job returns a handle to the job of that name, 1 to 512 bytes of UTF-8 without NUL. It does not block; an invalid name
// or option is reported when the handle is used, as ErrInvalid or ErrTooLarge.
//
// Runs are held under the node's own session, which has the TTL Config.SessionTTL and no lock-delay. While a member of the
// group runs a build that does not know jobs, Once and Every fail with ErrUpgradeRequired.
func (g *Group) Job(name string, opts ...JobOption) *Job { return newJob(g, nil, name, opts) }

// Job returns a handle to the job of that name, like [Group.Job], whose runs are held under this session, with its
// lock-delay. Once the session has ended, Once and Every fail with ErrSessionExpired.
func (s *Session) Job(name string, opts ...JobOption) *Job {
	return newJob(s.group, s.lease, name, opts)
}

func newJob(g *Group, lease *client.Lease, name string, opts []JobOption) *Job {
	j := &Job{group: g, lease: lease, name: name}
	for _, o := range opts {
		o.applyJob(j)
	}
	if err := validName(name); err != nil {
		j.bad = err
	}
	return j
}

// Once runs f, unless it has run to its end for this key already, in this process or another. The key is 1 to 512 bytes of UTF-8 without
// NUL, such as the time for which the work is scheduled. Once blocks until no other run of the key is under way, and then
// until f has returned and the group has recorded that. So of several processes that call it for the same key
// one runs f, and the others return ErrJobDone when that has ended, or run f if it has failed.
//
// The context passed to f carries the fence as well ([FenceFromContext]). It is done when ctx is, and, with the cause
// ErrLockOwnershipLost, when the run is lost; f should then stop and must not touch what the job works on. If f returns
// nil, the run is done and the key closed. If it returns an error, panics, or ends its goroutine, the run has failed with that
// text, of which 128 bytes are kept, and the key may run again, here or elsewhere: at most as often as [Attempts] allows.
//
// Once returns nil only if the group has recorded that f ran to its end by this call. Otherwise:
//
//   - f was not called: ErrJobDone, as a *[JobDoneError] that has the key's last run, if the key is closed; ctx's error, with
//     ErrUnavailable if no quorum was reachable; ErrSessionExpired for a job of a session that has ended; ErrBusy
//     with too many waiters, calls or jobs; ErrUpgradeRequired; ErrTooLarge and ErrInvalid for the name, the key or an
//     option; ErrClosed. A request that waits is withdrawn in the background, and no attempt counts.
//   - f has failed: its error as it is, joined with that of the end of the run if this fails too.
//   - The run was lost meanwhile: ErrLockOwnershipLost, joined with f's error. f may have run to its end, which the group has
//     not recorded. The key may run again.
//
// When f has returned, Once waits for the group even if ctx is done, at most until the session's deadline if it has one.
//
// The group retains the 64 largest keys of a job in natural order: digits compare as numbers, so "run-9" is before "run-10",
// and times such as "2026-11-25T02:00Z" are in their order. A smaller key than all of these, and one that was forgotten or
// is before a forgotten one, is refused with ErrJobDone, as it may have run; unless it is retained, and has failed or was lost: then it
// may run again. So use keys that ascend; keys in no order need a job each, and [Job.Delete] once they do not run any more.
//
// A call of Once for the same key within f waits for itself.
func (j *Job) Once(ctx context.Context, key string, f func(ctx context.Context, fence Fence) error) error {
	err := j.bad
	if err == nil {
		err = validKey(key)
	}
	if err != nil {
		return fault("once", j.name, err)
	}
	r := j.newRun(key, 0)
	fence, err := r.start(ctx)
	if err != nil {
		return fault("once", r.name, err)
	}
	return r.work(ctx, fence, f)
}

func validKey(key string) error {
	if err := validName(key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	return nil
}

// Every runs f in one process in each period, until ctx is done. All processes that may run it call Every with the same
// period, 1 ms to 366 days. Between the starts of two runs, over all processes of the group, at least the period passes
// with which the first of them was requested. A run that takes longer delays the next one: no two are under way at once. A run starts when the
// group grants it; its process calls f when it learns of that.
//
// Periods go by group time, never by a wall clock. It stands still while the group has no leader or its machines are
// suspended, so a period may take longer, and never less: over leader changes, restarts of all processes, and whatever
// becomes of the process that ran last. For times of a calendar call [Job.Once] with the time as the key.
//
// f gets a context as with Once. Its error is recorded ([Job.Info]) and does not end Every, nor does the loss of a run; a
// run that failed or was lost is not repeated before the next period. A panic of f ends its run as failed and goes on to the caller.
//
// Every blocks until f has returned, and then returns: ctx's error, when ctx is done; ErrSessionExpired for a job of a
// session that has ended; or else the error of a request for the next run that failed: ErrBusy with too many
// waiters, calls or jobs; ErrUpgradeRequired; ErrTooLarge and ErrInvalid for the name, the period or an option; ErrClosed. It
// never returns nil. Call it again after an ErrBusy, as that describes.
func (j *Job) Every(ctx context.Context, every time.Duration, f func(ctx context.Context, fence Fence) error) error {
	err := j.bad
	if err == nil && (every < minDuration || every > maxEvery) {
		err = fmt.Errorf("%w period: want %v to %v, got %v", ErrInvalid, minDuration, maxEvery, every)
	}
	if err != nil {
		return fault("every", j.name, err)
	}
	for {
		r := j.newRun("", every)
		fence, err := r.start(ctx)
		if err != nil {
			return fault("every", j.name, withContextError(ctx, err))
		}
		// What the run ended with is recorded, or it was lost. If the group refuses the next one too, start returns why.
		_ = r.work(ctx, fence, f)
	}
}

// jobRun is one run.
type jobRun struct {
	group  *Group
	job    *Job
	key    string
	name   string // for people
	handle client.Run
}

func (j *Job) newRun(key string, every time.Duration) *jobRun {
	cfg := client.RunConfig{Lease: j.lease, Name: j.name, Job: j.name, Key: key, Every: every}
	if every == 0 {
		cfg.Name, cfg.Attempts, cfg.Keep = j.name+" "+key, j.attempts, j.keep
	}
	r := &jobRun{group: j.group, job: j, key: key, name: cfg.Name}
	r.handle.Init(j.group.client, cfg)
	return r
}

// start waits until the run begins.
func (r *jobRun) start(ctx context.Context) (Fence, error) {
	began, span := r.group.calls.begin(), r.span(ctx, CallStartRun, "start run")
	f, err := r.handle.Acquire(ctx, span.trace())
	if err == nil {
		span.granted(Fence(f), r)
		if err = contextError(ctx); err != nil {
			r.giveUp() // it does not count, as f is not called
		}
	}
	if err != nil {
		f, err = 0, r.explain(err)
	}
	span.end(err)
	r.group.calls.returned(CallStartRun, began, err)
	return Fence(f), err
}

// giveUp implements grant. The run has no result yet, so it counts as not started.
func (r *jobRun) giveUp() { _ = r.handle.Release(ended(), nil) }

// explain makes the error of a key that is closed.
func (r *jobRun) explain(err error) error {
	var f *client.Fault
	if errors.As(err, &f) && f.Kind == client.Refused && f.Reply.GetCode() == wire.Code_JOB_DONE {
		return &JobDoneError{Job: r.job.name, Key: r.key, Run: refusedRun(r.key, f.Reply.GetRun())}
	}
	return err
}

// work calls f and ends the run. Unless f returns, it has failed.
func (r *jobRun) work(ctx context.Context, fence Fence, f func(ctx context.Context, fence Fence) error) (err error) {
	result, detail := wire.RunResult_FAILED, "the function has not returned: it panicked, or ended its goroutine"
	defer func() {
		unrecorded := r.end(context.WithoutCancel(ctx), result, detail)
		if unrecorded != nil {
			result = wire.RunResult_LOST
		}
		r.group.jobs.Ended(r.job.name, result)
		err = joined(err, unrecorded)
	}()
	running, stop := client.WithLoss(ctx, r.handle.Lost(), func() error { return ErrLockOwnershipLost })
	defer stop()
	if err = f(ContextWithFence(running, fence), fence); err == nil {
		result, detail = wire.RunResult_DONE, ""
	} else {
		detail = err.Error()
	}
	return err
}

// end ends the run with a result.
func (r *jobRun) end(ctx context.Context, result wire.RunResult, detail string) error {
	began, span := r.group.calls.begin(), r.span(ctx, CallEndRun, "end run")
	err := fault("end run", r.name, r.handle.End(ctx, result, detail, span.trace()))
	span.end(err)
	r.group.calls.returned(CallEndRun, began, err)
	return err
}

func (r *jobRun) span(ctx context.Context, kind CallKind, op string) *span {
	t := &r.group.tracing
	if !t.on() {
		return nil
	}
	return t.begin(ctx, Operation{Kind: kind, Op: op, Name: r.name, Fence: Fence(r.handle.GrantedFence())})
}
