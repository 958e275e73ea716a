// Package survey measures what the group's state shows over time, where that costs more than a look at a counter: it reads a part
// of the state at each heartbeat, on the goroutine that applies the log, and adds up what it has seen. What it knows may be
// read at any time, from any goroutine.
package survey

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/metrics"
	"github.com/conclave-go/conclave/internal/wire"
)

// Jobs measures the runs of jobs: of some by name, and of all others together.
type Jobs struct {
	opened time.Time
	named  []*job
	others *job
	next   int // of named; for Look
}

// job is what is measured of a job.
type job struct {
	name               string
	done, failed, lost metrics.Counter
	succeeded          atomic.Pointer[time.Duration] // when its last success was, from Jobs.opened on; nil: not known
	fence              uint64                        // of that run; for Look
}

// Job is what is known of a job.
type Job struct {
	Name               string // "": of all that have no measure of their own
	Done, Failed, Lost uint64 // runs that have ended in this process
	Succeeded          bool   // a success of it, in any process, is known
	Since              time.Duration
}

// NewJobs returns a measure of these jobs, which are different, and of all others.
func NewJobs(names []string) *Jobs {
	j := &Jobs{opened: time.Now(), others: &job{}}
	for _, name := range names {
		j.named = append(j.named, &job{name: name})
	}
	return j
}

// Ended notes that a run in this process has ended. A result other than DONE and FAILED counts as LOST.
func (j *Jobs) Ended(name string, result wire.RunResult) {
	of := j.others
	if i := slices.IndexFunc(j.named, func(of *job) bool { return of.name == name }); i >= 0 {
		of = j.named[i]
	}
	switch result {
	case wire.RunResult_DONE:
		of.done.Add(1)
	case wire.RunResult_FAILED:
		of.failed.Add(1)
	default:
		of.lost.Add(1)
	}
}

// Look reads the state of one job that is measured by name, and at the next call that of the next one. Calls must not overlap.
func (j *Jobs) Look(m *machine.Machine) {
	if len(j.named) == 0 {
		return
	}
	j.next = (j.next + 1) % len(j.named)
	of := j.named[j.next]
	if v := machine.Ask[*machine.JobView](m, machine.JobQuery{Name: of.name}); v != nil {
		of.note(v.Runs, time.Since(j.opened))
	}
}

// note notes the last success among the runs. Group time stands still while nothing is applied, and is behind while the log is
// applied again after a start: the earliest time that it gives for a run is right.
func (of *job) note(runs []machine.RunView, now time.Duration) {
	var last *machine.RunView
	for i, r := range runs {
		if r.Result == wire.RunResult_DONE && (last == nil || r.Ended < last.Ended) {
			last = &runs[i]
		}
	}
	if last == nil {
		return
	}
	at, known := now-time.Duration(last.Ended), of.succeeded.Load()
	if known == nil || last.Fence == of.fence && at < *known || last.Fence != of.fence && at > *known {
		of.succeeded.Store(&at)
		of.fence = last.Fence
	}
}

// Read returns what is known: of the jobs by name, in their order, and then of all others.
func (j *Jobs) Read() (all []Job) {
	now := time.Since(j.opened)
	for _, of := range append(slices.Clip(j.named), j.others) {
		known := Job{Name: of.name, Done: of.done.Load(), Failed: of.failed.Load(), Lost: of.lost.Load()}
		if at := of.succeeded.Load(); at != nil {
			known.Succeeded, known.Since = true, now-*at
		}
		all = append(all, known)
	}
	return all
}
