package reference

import (
	"cmp"
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// The keys of jobs, and which of them are retained.

func (x jobs) job(name string) *Job {
	for _, j := range x.Jobs {
		if j.Name == name {
			return j
		}
	}
	return nil
}

// existing returns the job of that name, and adds one if there is none.
func (x jobs) existing(name string) *Job {
	if j := x.job(name); j != nil {
		return j
	}
	j := &Job{Name: name}
	x.Jobs = append(x.Jobs, j)
	return j
}

// lockOf returns the lock of a key, or of the runs with every; nil: there is none.
func (x jobs) lockOf(job, key string) *Lock {
	for _, l := range x.Locks {
		if l.Job == job && l.Job != "" && l.RunKey == key {
			return l
		}
	}
	return nil
}

// last returns the last run of a key that is retained, or with every; nil: there is none.
func (x jobs) last(job, key string) (last *Run) {
	if j := x.job(job); j != nil {
		for _, run := range j.Runs {
			if run.Key == key {
				last = run
			}
		}
	}
	return last
}

// LastPeriod returns the last run with every that is retained, or nil.
func (j *Job) LastPeriod() (last *Run) {
	for _, run := range j.Runs {
		if run.Key == "" {
			last = run
		}
	}
	return last
}

// Lives reports whether a session has not ended.
func Lives(r *Model, id wire.ID) bool { return r.session(id[:]) != nil }

// EndedAt returns when a session has ended something of which is not released yet.
func EndedAt(r *Model, id wire.ID) int64 { return r.lateSession(id).at }

// NextPeriod returns the time before which no run with every follows the last one, of.
func NextPeriod(r *Model, j *Job, of *Run) int64 {
	at := later(of.Started, of.Every)
	for _, l := range r.Locks {
		switch {
		case l.Job != j.Name || l.RunKey != "":
		case l.Owner != nil && !Lives(r, l.Owner.Session):
			return max(at, r.lateSession(l.Owner.Session).until)
		default:
			return max(at, l.until)
		}
	}
	return at
}

// count counts the retained runs with every, or those of keys.
func (j *Job) count(every bool) (n int) {
	for _, run := range j.Runs {
		if (run.Key == "") == every {
			n++
		}
	}
	return n
}

// closed reports that a key is not to run any more, for a request with so many attempts.
func (run *Run) closed(attempts uint32) bool {
	switch run.Result {
	case wire.RunResult_DONE:
		return true
	case wire.RunResult_RUNNING:
		return false
	}
	return attempts != 0 && run.Attempts >= attempts
}

// closed returns the last run of a key that is not to run any more; nil: it may run, or is running.
func (x jobs) closed(c *wire.RunJob) *wire.Run {
	j := x.job(c.Job)
	if j == nil || c.Key == "" {
		return nil
	}
	run := x.last(c.Job, c.Key)
	if run != nil && run.closed(c.Attempts) {
		x.reached("JOB_DONE at once: " + run.Result.String())
		return x.describe(run)
	}
	if run != nil && x.lockOf(c.Job, c.Key) == nil && run.Keep != 0 && later(run.Ended, run.Keep) <= x.Now {
		x.reached("forgotten by time: " + run.Result.String())
		j.forget(run)
		run = nil
	}
	if run == nil && j.Forgets && Natural(c.Key, j.Floor) <= 0 {
		x.reached("FORGOTTEN")
		return &wire.Run{Result: wire.RunResult_FORGOTTEN}
	}
	return nil
}

// forget removes a key for ever.
func (j *Job) forget(run *Run) {
	j.Runs = slices.DeleteFunc(j.Runs, func(r *Run) bool { return r == run })
	if !j.Forgets || Natural(j.Floor, run.Key) < 0 {
		j.Floor = run.Key
	}
	j.Forgets = true
}

// room makes room for a new key, or returns the refusal.
func (x jobs) room(c *wire.RunJob) *wire.Reply {
	j := x.job(c.Job)
	if j == nil || j.count(false) < MaxRuns {
		return nil
	}
	var smallest *Run
	for _, run := range j.Runs {
		if run.Key != "" && x.lockOf(c.Job, run.Key) == nil && (smallest == nil || Natural(run.Key, smallest.Key) < 0) {
			smallest = run
		}
	}
	switch {
	case smallest == nil:
		x.reached("BUSY: all keys are in use")
		return answer(wire.Code_BUSY)
	case Natural(c.Key, smallest.Key) < 0:
		x.reached("FORGOTTEN: below all that are retained")
		return &wire.Reply{Code: wire.Code_JOB_DONE, Run: &wire.Run{Result: wire.RunResult_FORGOTTEN}}
	}
	x.reached("forgotten for a new key")
	j.forget(smallest)
	return nil
}

// tooMany reports that there is no room for what a run would retain.
func (x jobs) tooMany(c *wire.RunJob) bool {
	before, after := x.jobBytes(nil), x.jobBytes(c)
	if after == before {
		return false
	}
	if x.job(c.Job) == nil && len(x.Jobs) >= x.reserving(cmp.Or(x.MostJobs, MaxJobs), ReservedJobs) {
		return true
	}
	return after > x.reserving(cmp.Or(x.MostJobBytes, MaxJobBytes), ReservedJobBytes)
}

// jobBytes counts what is retained of all jobs, with that of one more run unless it is nil.
func (x jobs) jobBytes(more *wire.RunJob) (n int) {
	all := slices.Clone(x.Jobs)
	if more != nil {
		j := &Job{Name: more.Job}
		if i := slices.IndexFunc(all, func(o *Job) bool { return o.Name == more.Job }); i < 0 {
			all = append(all, j)
		} else {
			*j = *all[i]
			all[i] = j
		}
		if more.Key == "" {
			j.Runs = append(slices.Clone(j.Runs), &Run{Period: 1})
		} else if x.last(more.Job, more.Key) == nil {
			j.Runs = append(slices.Clone(j.Runs), &Run{Key: more.Key})
		}
	}
	for _, j := range all {
		n += 256 + len(j.Name)
		if j.count(true) > 0 {
			n += 64 * 256
		}
		for _, run := range j.Runs {
			if run.Key != "" {
				n += 512 + len(run.Key)
			}
		}
	}
	return n
}

// Natural compares two keys: digits that follow each other compare as a number, all else by bytes, and equal numbers as well
// if that is all.
func Natural(a, b string) int {
	x, y := tokens(a), tokens(b)
	for i := range min(len(x), len(y)) {
		if !digit(x[i][0]) || !digit(y[i][0]) {
			if n := cmp.Compare(x[i][0], y[i][0]); n != 0 {
				return n
			}
			continue
		}
		m, n := strings.TrimLeft(x[i], "0"), strings.TrimLeft(y[i], "0")
		if n := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); n != 0 {
			return n
		}
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

func digit(b byte) bool { return b >= '0' && b <= '9' }

// tokens cuts a key into numbers and single bytes.
func tokens(key string) (all []string) {
	for i := 0; i < len(key); {
		n := 1
		for digit(key[i]) && i+n < len(key) && digit(key[i+n]) {
			n++
		}
		all = append(all, key[i:i+n])
		i += n
	}
	return all
}

// reached counts what happens to jobs, for tests of generators.
func (x jobs) reached(what string) {
	if x.Reached != nil {
		x.Reached[what]++
	}
}
