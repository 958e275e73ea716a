package machine

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// jobs checks the jobs with what they retain, and the locks of their runs.
func (a *auditor) jobs() {
	locks, size := make(map[string]int), 0
	for name, l := range a.m.jobs.locks.byName {
		job, key := jobOf(name)
		locks[job]++
		a.runLock(l, a.m.jobs.byName[job], key)
	}
	auditIndex(a, a.m.jobs.locks.byName, a.m.jobs.locks.index)
	for name, j := range a.m.jobs.byName {
		a.job(j)
		if j.name != name || j.locks != locks[name] {
			a.fail("job %q is kept under %q and counts %d locks, and has %d", j.name, name, j.locks, locks[name])
		}
		size += jobBytes + len(name)
		if len(j.regular) > 0 {
			size += regularBytes
		}
		for _, r := range j.keyed {
			size += runBytes + len(r.key)
		}
	}
	auditIndex(a, a.m.jobs.byName, a.m.jobs.index)
	if size != a.m.jobs.bytes {
		a.fail("jobs retain %d bytes, and %d are counted", size, a.m.jobs.bytes)
	}
	if n := len(a.m.jobs.byName); n > MaxJobs+ReservedJobs || size > MaxJobBytes+ReservedJobBytes || n > 0 && !(jobRuns{a.m}).hasJobs() {
		a.fail("%d jobs retain %d bytes at level %d", n, size, a.m.levels.agreed)
	}
}

// runLock checks what the lock of a key stands for, besides what is checked of each lock.
func (a *auditor) runLock(l *lock, j *job, key string) {
	last := j.find(key)
	switch {
	case j == nil, key != "" && last == nil:
		a.fail("lock %q is of a run that is not retained", l.name())
		return
	case l.owner != nil && (jobRuns{a.m}.running(l) != last || last == nil || l.holds != 1 || last.session != l.owner.id):
		a.fail("lock %q is held, and the last run of its key is %+v", l.name(), last)
	case l.lingering || l.label() != "" || l.set() != nil || l.sets() != nil || l.phase().held() || l.bound() != nil || l.leader() != nil:
		a.fail("lock %q has what no run has", l.name())
	case l.awaitsPortion() && !(jobRuns{a.m}).isClosedTo(l.head()):
		a.fail("lock %q: the head waits for what is free", l.name())
	}
	for w := l.head(); w != nil; w = w.inQueue.Next() {
		if t := w.terms; t == nil || (key == "") != (t.every != 0) || key == "" && t.attempts != 0 || w.shared || w.lingering || w.label != "" || w.maxHold != 0 {
			a.fail("lock %q: the waiter in position %d does not wait for a run", l.name(), w.position)
		}
	}
}

// job checks what a job retains.
func (a *auditor) job(j *job) {
	x := jobRuns{a.m}
	if j.locks == 0 && len(j.keyed)+len(j.regular) == 0 && !j.forgets && j.periods == 0 || j.forgets != (j.floor != "") {
		a.fail("job %q has no reason to exist, or forgets %t up to %q", j.name, j.forgets, j.floor)
	}
	if len(j.keyed) > MaxRuns || len(j.regular) > MaxRuns {
		a.fail("job %q retains %d keys and %d periods", j.name, len(j.keyed), len(j.regular))
	}
	for i, r := range j.keyed {
		switch {
		case r.key == "" || r.period != 0 || r.every != 0 || i > 0 && naturally(j.keyed[i-1].key, r.key) >= 0 || j.find(r.key) != r:
			a.fail("job %q: key %q is not where it belongs", j.name, r.key)
		case r.lock != a.m.jobs.locks.byName[jobName(j.name, r.key)]:
			a.fail("job %q: key %q does not know its lock", j.name, r.key)
		case r.attempts == 0 && r.lock == nil:
			a.fail("job %q: key %q has not run", j.name, r.key)
		}
	}
	for i, r := range j.regular {
		if r.key != "" || r.lock != nil || r.period == 0 || r.period > j.periods || r.every == 0 || r.attempts != 1 || i > 0 && j.regular[i-1].period >= r.period ||
			i < len(j.regular)-1 && r.result == wire.RunResult_RUNNING {
			a.fail("job %q: period %d is not where it belongs", j.name, r.period)
		}
	}
	for _, r := range slices.Concat(j.keyed, j.regular) {
		l := a.m.jobs.locks.byName[jobName(j.name, r.key)]
		runs := r.result == wire.RunResult_RUNNING
		switch {
		case r.job != j || r.fence == 0 || r.fence > a.m.fence() || r.started < 0 || r.started > a.m.now || len(r.detail) > wire.MaxRunDetail:
			a.fail("job %q: impossible run %+v", j.name, *r)
		case runs && (l == nil || l.owner == nil || l.fence != r.fence || x.running(l) != r || r.ended != 0 || r.detail != ""):
			a.fail("job %q: %q runs without its lock: %+v", j.name, r.key, *r)
		case !runs && (r.ended < r.started || r.ended > a.m.now):
			a.fail("job %q: %q ended at %d: %+v", j.name, r.key, r.ended, *r)
		case !runs && !slices.Contains([]wire.RunResult{wire.RunResult_DONE, wire.RunResult_FAILED, wire.RunResult_LOST}, r.result):
			a.fail("job %q: %q has the result %v", j.name, r.key, r.result)
		}
	}
}

// awaitsPortion reports that the next entries have to serve the queue.
func (l *lock) awaitsPortion() bool {
	return l.isDue() || l.isJob() && l.owner == nil && l.delayUntil == 0 && l.head() != nil
}

// eachOfJobs calls put with the jobs and the runs that they retain.
func eachOfJobs(m *Machine, put func(key string, r record)) {
	for _, j := range m.jobs.byName {
		put(j.durable(), j)
		for _, r := range slices.Concat(j.keyed, j.regular) {
			put(r.durable(), r)
		}
	}
}
