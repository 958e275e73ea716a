package machine

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// checkJobs compares what queries show of jobs with the reference, after some of the entries: that takes as long as all else.
func (r *rig) checkJobs() error {
	if r.index%4 != 0 {
		return nil
	}
	jobs := slices.SortedFunc(slices.Values(r.model.Jobs), func(a, b *reference.Job) int { return cmp.Compare(a.Name, b.Name) })
	views := allJobs(r.straight)
	for i, j := range jobs {
		if i >= len(views) {
			break
		}
		want := JobView{Name: j.Name, Periods: j.Periods, Runs: []RunView{}}
		for _, l := range r.model.Locks {
			if l.Job != j.Name {
				continue
			}
			want.Waiting += len(l.Queue)
			if l.Owner != nil && reference.Lives(&r.model, l.Owner.Session) {
				want.Running++
			}
		}
		for _, of := range slices.SortedFunc(slices.Values(j.Runs), func(a, b *reference.Run) int { return cmp.Compare(b.Fence, a.Fence) }) {
			if of.Attempts > 0 {
				want.Runs = append(want.Runs, r.shownRun(j, of))
			}
		}
		if err := sameView(views[i], want); err != nil {
			return fmt.Errorf("job %w", err)
		}
	}
	if len(jobs) != len(views) {
		return fmt.Errorf("%d jobs, want %d", len(views), len(jobs))
	}
	return nil
}

// sameView compares what two views show: an empty list is none. It formats them only where they differ, which would take a third of the
// time of random logs.
func sameView[V any](got, want V) error {
	if reflect.DeepEqual(got, want) {
		return nil
	}
	if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); got != want {
		return fmt.Errorf("%s\nwant %s", got, want)
	}
	return nil
}

// shownRun is a run as a query must show it: lost, if its session has ended.
func (r *rig) shownRun(j *reference.Job, of *reference.Run) RunView {
	v := RunView{
		Key: of.Key, Period: of.Period, Result: of.Result, Attempt: of.Attempts, Fence: of.Fence, Session: of.Session, Member: of.Member, Client: of.Client,
		Started: r.model.Now - of.Started, Detail: of.Detail,
	}
	switch {
	case of.Ended != 0:
		v.Ended = r.model.Now - of.Ended
	case of.Result == wire.RunResult_RUNNING && !reference.Lives(&r.model, of.Session):
		v.Result, v.Ended = wire.RunResult_LOST, r.model.Now-reference.EndedAt(&r.model, of.Session)
	}
	if of.Key == "" && of == j.LastPeriod() {
		v.Due = max(0, reference.NextPeriod(&r.model, j, of)-r.model.Now)
	}
	return v
}
