package conclavehttp

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/conclave-go/conclave"
)

// job is a job with its last runs.
type job struct {
	conclave.JobInfo
	Last      []conclave.JobRun // the last ones that started
	More      int               // retained runs that are not listed
	Succeeded bool              // a retained run has ended well, Success ago
	Success   time.Duration
}

const maxRuns = 4 // of a job that are listed

// listJobs lists jobs; of a process or session those that it has run, with these runs.
func (a *answerData) listJobs(ctx context.Context, group *conclave.Group, q query, r *reading) {
	var failed error
	_, a.Next, a.Err = firstRows(r, group.Jobs(ctx, q.prefix, conclave.After(q.after)), func(j conclave.JobInfo) string { return j.Name },
		func(j *conclave.JobInfo) bool {
			info, err := group.Job(j.Name).Info(ctx)
			failed = errors.Join(failed, err)
			r.looked += len(info.Runs)
			shown := jobOf(info, a.of)
			if err != nil || shown == nil {
				return false
			}
			a.Jobs = append(a.Jobs, *shown)
			return true
		})
	if a.Err == nil {
		a.Err = failed
	}
}

// jobOf returns a job with its last runs, or nil if none of its runs is listed.
func jobOf(info conclave.JobInfo, of ownership) *job {
	runs := slices.DeleteFunc(slices.Clone(info.Runs), func(r conclave.JobRun) bool { return !of.has(r.Node, r.Session) })
	if len(runs) == 0 && !of.all() {
		return nil
	}
	j := &job{JobInfo: info, Last: runs[:min(len(runs), maxRuns)]}
	j.More = len(runs) - len(j.Last)
	for _, r := range info.Runs {
		if r.Result == conclave.JobDone && (!j.Succeeded || r.Ended < j.Success) {
			j.Succeeded, j.Success = true, r.Ended
		}
	}
	return j
}
