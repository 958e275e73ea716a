package conclave

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// JobInfo describes a job. For one that has never run, or is not retained, only Name is set.
type JobInfo struct {
	Name string
	// Periods is how many runs of [Job.Every] have started so far.
	Periods uint64
	Running int // runs under way: of different keys, and of Every
	Waiting int // requests that wait for a run
	// Runs has the retained runs, the last started first: the last run of each of up to 64 keys, and up to 64 runs of
	// Every. It is nil in what [Group.Jobs] lists.
	Runs []JobRun
}

// JobRun describes a run of a job. Times are by group time, as those of an [Explanation] are.
//
// A call of Once that ends with ctx after its run was granted, and before f was called, leaves that run as JobFailed without Error, with
// its Fence and its start, in place of the key's run before. Its attempt does not count.
type JobRun struct {
	Key    string // of Once
	Period uint64 // of Every: the number of the run; 0: of Once
	Result JobResult
	// Attempt is, of Once, how many runs of the key have counted, with this one if it counts.
	Attempt int
	Fence   Fence
	Session SessionID
	Node    MemberID      // that ran it
	Client  bool          // Node is a client; see [Dial]
	Started time.Duration // how long ago
	Ended   time.Duration // how long ago; 0 with JobRunning
	Error   string        // with JobFailed, the first 128 bytes of the text of the error
	// Due is, of the last run of Every, how long it takes until the next one may start: by the period, and by the lock-delay
	// if the run was lost. 0: it may, once this one has ended.
	Due time.Duration
}

// JobResult is how a run has ended.
type JobResult int

// The results of runs.
const (
	JobRunning   JobResult = iota + 1 // it is under way
	JobDone                           // it ran to its end
	JobFailed                         // it ended with an error, a panic or the end of its goroutine
	JobLost                           // its session ended before, or was attached to another process
	JobForgotten                      // the key is not retained: whether it ran is not known; only in a [JobDoneError]
)

// String returns the result in lower case, as "done".
func (r JobResult) String() string {
	names := [JobForgotten]string{"running", "done", "failed", "lost", "forgotten"}
	if r >= 1 && r <= JobForgotten {
		return names[r-1]
	}
	return fmt.Sprintf("JobResult(%d)", int(r))
}

// jobResult is a result as it is documented here; 0: another build has written one that this one does not know.
func jobResult(r wire.RunResult) JobResult {
	switch r {
	case wire.RunResult_RUNNING:
		return JobRunning
	case wire.RunResult_DONE:
		return JobDone
	case wire.RunResult_FAILED:
		return JobFailed
	case wire.RunResult_LOST:
		return JobLost
	case wire.RunResult_FORGOTTEN:
		return JobForgotten
	}
	return 0
}

// Info describes the job with its retained runs. It is linearizable, and blocks and fails as [FencedLock.Info] does.
func (j *Job) Info(ctx context.Context) (JobInfo, error) {
	err := j.bad
	var v *machine.JobView
	if err == nil {
		v, err = ask[*machine.JobView](ctx, j.group, machine.JobQuery{Name: j.name})
	}
	switch {
	case err != nil:
		return JobInfo{}, fault("info", j.name, err)
	case v == nil:
		return JobInfo{Name: j.name}, nil
	}
	return jobInfo(*v), nil
}

// Delete deletes what the group retains of the job: its runs, which keys have run or are forgotten, and when Every started
// last. Afterwards each key may run again, also one that has run to its end: delete a job that no process will ask for any more, or
// to have all of it run again. The fences of later runs are larger nevertheless.
//
// It fails with ErrLocked, and changes nothing, while a run is under way, is awaited by another call, or may not begin yet: in the
// lock-delay after a lost run, and until the period of Every has passed. If there is no such job, nothing happens.
//
// It blocks until the group has agreed. Other errors: ErrUpgradeRequired while a member of the group runs a build that does not know
// Delete; ErrTooLarge and ErrInvalid for the name; ErrBusy with too many calls; ErrClosed; and ctx's with ErrUnavailable or
// ErrUnknown: the job may have been deleted then, and to delete it again does no harm.
func (j *Job) Delete(ctx context.Context) error {
	err := j.bad
	if err == nil {
		err = client.DeleteJob(ctx, j.group.client, j.name)
	}
	return fault("delete job", j.name, err)
}

func jobInfo(v machine.JobView) JobInfo {
	info := JobInfo{Name: v.Name, Periods: v.Periods, Running: v.Running, Waiting: v.Waiting}
	for _, r := range v.Runs {
		info.Runs = append(info.Runs, JobRun{
			Key: r.Key, Period: r.Period, Result: jobResult(r.Result), Attempt: int(r.Attempt), Fence: Fence(r.Fence),
			Session: SessionID(r.Session), Node: MemberID(r.Member), Client: r.Client,
			Started: duration(r.Started), Ended: duration(r.Ended), Error: r.Detail, Due: duration(r.Due),
		})
	}
	return info
}

// Jobs lists the jobs of the group whose names begin with prefix, by name, without their runs. It reads pages, as
// [Group.Locks] does.
func (g *Group) Jobs(ctx context.Context, prefix string, opts ...ListOption[string]) iter.Seq2[JobInfo, error] {
	l := listingOf(opts)
	if err := validPrefixes(prefix, l.after); err != nil {
		return refused[JobInfo]("list jobs", prefix, err)
	}
	return pages(ctx, g, "list jobs", prefix, l, func(after string) machine.Query {
		return machine.JobsQuery{Prefix: prefix, After: after, Limit: pageSize}
	}, func(v machine.JobView) string { return v.Name }, jobInfo)
}

// JobDoneError is the reason why [Job.Once] did not run a key. It wraps ErrJobDone.
type JobDoneError struct {
	Job, Key string
	// Run is the key's last run. If the key is forgotten, only Key and the Result JobForgotten are set.
	Run JobRun
}

// Error says why the key is closed.
func (e *JobDoneError) Error() string { return fmt.Sprintf("%v: %s", ErrJobDone, e.why()) }

// Unwrap returns ErrJobDone.
func (e *JobDoneError) Unwrap() error { return ErrJobDone }

func (e *JobDoneError) why() string {
	r := e.Run
	process := "member"
	if r.Client {
		process = "client"
	}
	by := fmt.Sprintf("%v ago on %s %v", r.Ended.Round(time.Millisecond), process, r.Node)
	switch r.Result {
	case JobDone:
		return "it ran to its end " + by
	case JobFailed:
		return fmt.Sprintf("attempt %d was the last one, and failed %s: %q", r.Attempt, by, r.Error)
	case JobLost:
		return fmt.Sprintf("attempt %d was the last one, and was lost %s", r.Attempt, by)
	}
	return "it is older than the keys that are retained, so it may have run"
}

// refusedRun is the run that a refusal names.
func refusedRun(key string, r *wire.Run) JobRun {
	session, _ := wire.IDFrom(r.GetSession()) // else there is none
	return JobRun{
		Key: key, Result: jobResult(r.GetResult()), Attempt: int(r.GetAttempt()), Fence: Fence(r.GetFence()),
		Session: SessionID(session), Node: MemberID(r.GetMember()), Client: r.GetClient(),
		Started: duration(r.GetStarted()), Ended: duration(r.GetEnded()), Error: r.GetDetail(),
	}
}
