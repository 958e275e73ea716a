package machine

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// JobView is a job at the applied index.
type JobView struct {
	Name    string
	Periods uint64    // runs without a key so far
	Running int       // runs under way
	Waiting int       // requests for runs
	Runs    []RunView `json:",omitempty"` // retained; the last one that started first
}

// RunView is a run of a job.
type RunView struct {
	Key     string `json:",omitempty"`
	Period  uint64 `json:",omitempty"` // of a run without a key: its number
	Result  wire.RunResult
	Attempt uint32 // runs of the key up to this one
	Fence   uint64
	Session wire.ID
	Member  uint64
	Client  bool   // Member is a client's ID
	Started int64  // how long ago, by group time
	Ended   int64  `json:",omitempty"` // how long ago; 0 while it runs
	Detail  string `json:",omitempty"`
	// Due is how long it is until the next run without a key may start, of the last one; 0: it may.
	Due int64 `json:",omitempty"`
}

// JobQuery asks for a job. The answer is a *JobView: nil if nothing is retained of it.
type JobQuery struct{ Name string }

// Begin implements [Query].
func (q JobQuery) Begin(m *Machine) func() any {
	j := m.jobs.byName[q.Name]
	if j == nil {
		return answered((*JobView)(nil))
	}
	v := jobRuns{m}.view(j)
	v.Runs = jobRuns{m}.views(j)
	return answered(&v)
}

// JobsQuery asks for jobs, without their runs. The answer is a []JobView by name.
type JobsQuery struct {
	Prefix, After string
	Limit         int
}

// Begin implements [Query].
func (q JobsQuery) Begin(m *Machine) func() any {
	var views []JobView
	p := m.newPage(q.Limit)
	m.jobs.index.Page(&job{name: max(q.Prefix, q.After)}, q.Prefix, q.After, func(j *job) bool {
		views = append(views, jobRuns{m}.view(j))
		if j.locks > 0 {
			p.visited -= len(j.keyed)
		}
		return p.add(len(j.name)) && p.visit()
	})
	return answered(views)
}

// view describes a job without its runs.
func (x jobRuns) view(j *job) JobView {
	v := JobView{Name: j.name, Periods: j.periods}
	count := func(l *lock) {
		if l != nil {
			v.Waiting += l.waiters()
			if l.owner != nil && !l.owner.dead() {
				v.Running++
			}
		}
	}
	if j.locks > 0 {
		count(x.jobs.locks.byName[jobName(j.name, "")])
		for _, r := range j.keyed {
			x.visits.Count()
			count(r.lock)
		}
	}
	return v
}

// views describes the runs that are retained of a job.
func (x jobRuns) views(j *job) []RunView {
	views := make([]RunView, 0, len(j.keyed)+len(j.regular))
	for _, r := range slices.Concat(j.keyed, j.regular) {
		x.visits.Count()
		if r.attempts > 0 {
			views = append(views, x.viewRun(r))
		}
	}
	slices.SortStableFunc(views, func(a, b RunView) int { return cmp.Compare(b.Fence, a.Fence) })
	return views
}

func (x jobRuns) viewRun(r *run) RunView {
	v := RunView{
		Key: r.key, Period: r.period, Result: r.result, Attempt: r.attempts, Fence: r.fence,
		Session: r.session, Member: r.member, Client: r.client, Started: x.now - r.started, Detail: r.detail,
	}
	if r.ended != 0 {
		v.Ended = x.now - r.ended
	}
	if s := x.sessions[r.session]; r.result == wire.RunResult_RUNNING && s.dead() {
		v.Result, v.Ended = wire.RunResult_LOST, x.now-s.endedAt // and is being released
	}
	if r.key == "" && r == r.job.find("") {
		v.Due = max(0, x.nextPeriod(r)-x.now)
	}
	return v
}

// nextPeriod returns the time before which no run without a key follows r, the last one: by its period, and by the lock-delay if it is lost.
func (x jobRuns) nextPeriod(r *run) int64 {
	at := after(r.started, r.every)
	l := x.jobs.locks.byName[jobName(r.job.name, "")]
	switch {
	case l == nil:
		return at
	case l.owner != nil && l.owner.dead(): // and is being released
		return max(at, l.owner.delayUntil())
	}
	return max(at, l.delayUntil)
}
