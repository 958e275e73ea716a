package machine

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// jobRuns is a machine as far as jobs run.
type jobRuns struct{ *Machine }

// hasJobs reports whether the group is at the level of jobs.
func (x jobRuns) hasJobs() bool { return x.levels.agreed >= wire.LevelJobs }

// request grants a run, queues for it, or refuses it because the key is not to run any more.
func (x jobRuns) request(inc *incarnation, seq uint64, c *wire.RunJob) *wire.Reply {
	if r := x.check(c); r != nil {
		return r
	}
	s, refusal := x.live(c.Session)
	if s == nil {
		return refusal
	}
	name := jobName(c.Job, c.Key)
	l, refusal := x.lockNow(&x.jobs.locks, name)
	if refusal != nil {
		return refusal
	}
	w := &waiter{lock: l, session: s, handle: c.Handle, ticket: ticket{inc, seq}, terms: &terms{c.Attempts, c.Keep, c.Every}}
	if r := x.closed(l, c.Job, c.Key, w.terms); r != nil {
		return x.done(r)
	}
	if l != nil && l.owner == s && l.unclaimed() {
		if r := x.claim(l, w); r != nil {
			return r
		}
		l = x.jobs.locks.byName[name]
		w.lock = l
	}
	if r := x.mayHaveMore(s); r != nil {
		return r
	}
	if l != nil {
		if r := x.mayJoin(w); r != nil {
			return r
		}
		r := x.enqueue(w)
		r.Run = x.describe(x.jobs.byName[c.Job].find(c.Key))
		return r
	}
	if x.fences >= maxFences {
		return x.exhausted()
	}
	if r := x.makeRunRoom(c); r != nil {
		return r
	}
	l = &lock{key: string(jobLockKind) + name}
	x.jobs.locks.add(l)
	x.jobs.byName[c.Job].locks++
	return x.grant(l, w)
}

// check returns nil or the refusal of the terms of a request.
func (x jobRuns) check(c *wire.RunJob) *wire.Reply {
	if r := x.checkRun(c.Job, c.Key); r != nil {
		return r
	}
	switch {
	case (c.Key == "") != (c.Every != 0):
		return x.refuse(wire.Code_INVALID, "a run has either a key or a period")
	case c.Every != 0 && (c.Every < MinEvery || c.Every > MaxEvery):
		return x.refuse(wire.Code_INVALID, "the period is out of range: want 1 ms to 366 days")
	case c.Every != 0 && c.Attempts != 0:
		return x.refuse(wire.Code_INVALID, "runs with a period have no attempts")
	case c.Keep != 0 && (c.Keep < MinKeep || c.Keep > MaxKeep):
		return x.refuse(wire.Code_INVALID, "the time to keep a run is out of range: want 1 ms to 3653 days")
	}
	return nil
}

// checkRun returns nil or the refusal of a job's name and a key, which may be empty.
func (x jobRuns) checkRun(job, key string) *wire.Reply {
	return cmp.Or(x.checkName(job), x.checkOptionalName(key))
}

// closed returns the run that says why the key is not to run any more; nil: it may run. A run whose time has passed is
// forgotten.
func (x jobRuns) closed(l *lock, name, key string, t *terms) *run {
	j := x.jobs.byName[name]
	if j == nil || key == "" {
		return nil
	}
	r := j.find(key)
	switch {
	case r == nil && j.isBelow(key):
		return forgotten()
	case r == nil:
		return nil
	case r.isClosed(t):
		return r
	case l == nil && r.keep != 0 && after(r.ended, r.keep) <= x.now:
		x.forgetRun(r)
		return forgotten()
	}
	return nil
}

// isClosed reports whether the key is not to run any more on these terms.
func (r *run) isClosed(t *terms) bool {
	switch {
	case r.key == "" || r.result == wire.RunResult_RUNNING:
		return false
	case r.result == wire.RunResult_DONE:
		return true
	}
	return t.attempts != 0 && r.attempts >= t.attempts
}

// isClosedTo reports whether the key that w waits for is not to run any more.
func (x jobRuns) isClosedTo(w *waiter) bool {
	name, key := jobOf(w.lock.name())
	r := x.jobs.byName[name].find(key)
	return r != nil && r.isClosed(w.terms)
}

// dismiss answers a waiter for a key that is not to run any more.
func (x jobRuns) dismiss(w *waiter) {
	name, key := jobOf(w.lock.name())
	x.dequeue(w)
	x.settle(w.ticket, x.done(x.jobs.byName[name].find(key)))
}

// claim ends the unclaimed run of an attached session, whose process may have begun it: nothing of it goes on here. Another
// run begins in its place if one may, as no waiter is to be passed over by that; nil: the request is still to be decided.
func (x jobRuns) claim(l *lock, w *waiter) *wire.Reply {
	r := x.running(l)
	if r.key == "" { // it may have to wait, and refused it has no effect
		if refusal := cmp.Or(x.mayHaveMore(w.session), x.mayJoin(w)); refusal != nil {
			return refusal
		}
	}
	if r.key == "" || w.terms.attempts != 0 && r.attempts >= w.terms.attempts {
		x.finish(l, wire.RunResult_LOST, "")
		reply := x.done(r) // as the next run of the key may begin in this entry
		x.releaseLock(l, 0)
		if r.key == "" {
			return nil
		}
		return reply
	}
	if x.fences >= maxFences {
		return x.exhausted()
	}
	x.finish(l, wire.RunResult_LOST, "")
	return x.Machine.claim(l, w)
}

// makeRunRoom makes room for a run of a lock that does not exist yet, and makes the job if it does not exist. Refused, it
// changes nothing.
func (x jobRuns) makeRunRoom(c *wire.RunJob) *wire.Reply {
	j := x.jobs.byName[c.Job]
	more, victim := 0, (*run)(nil)
	switch {
	case j == nil && len(x.jobs.byName) >= x.limit(MaxJobs, ReservedJobs):
		return x.refuse(wire.Code_BUSY, "too many jobs in the group")
	case j == nil:
		more += jobBytes + len(c.Job)
	}
	switch {
	case c.Key == "" && (j == nil || len(j.regular) == 0):
		more += regularBytes
	case c.Key != "" && j.find(c.Key) == nil:
		more += runBytes + len(c.Key)
		if j != nil && len(j.keyed) >= MaxRuns {
			if victim = x.smallest(j); victim == nil {
				return x.refuse(wire.Code_BUSY, "64 keys of the job run or are awaited")
			}
			if naturally(c.Key, victim.key) < 0 {
				return x.done(forgotten())
			}
			more -= runBytes + len(victim.key)
		}
	}
	if more > 0 && x.jobs.bytes+more > x.limit(MaxJobBytes, ReservedJobBytes) {
		return x.refuse(wire.Code_BUSY, "the jobs of the group retain too much")
	}
	if victim != nil {
		x.forgetRun(victim)
	}
	if j == nil {
		j = &job{name: c.Job}
		x.jobs.add(j)
		x.dirty.put(j.durable(), j)
	}
	return nil
}

// smallest returns the retained run of the smallest key that neither runs nor is awaited, or nil.
func (x jobRuns) smallest(j *job) *run {
	for _, r := range j.keyed {
		x.visits.Count()
		if r.lock == nil {
			return r
		}
	}
	return nil
}

// begin records that a run begins with the grant of its lock to w, and adds it to the reply.
func (x jobRuns) begin(l *lock, w *waiter, reply *wire.Reply) {
	name, key := jobOf(l.name())
	j := x.jobs.byName[name]
	r := j.find(key)
	if r == nil || key == "" {
		r = &run{job: j, key: strings.Clone(key)} // not the memory of the lock's
		if key == "" {
			x.dropOldest(j)
			j.periods++
			r.period = j.periods
			x.dirty.put(j.durable(), j)
		}
		x.addRun(r)
	}
	if r.attempts < math.MaxUint32 { // or it would begin again at none
		r.attempts++
	}
	if key != "" {
		r.lock = l
	}
	r.result, r.fence, r.session, r.member, r.client = wire.RunResult_RUNNING, l.fence, w.session.id, w.session.member, w.session.client
	r.started, r.ended, r.detail, r.keep, r.every = x.now, 0, "", w.terms.keep, w.terms.every
	x.dirty.put(r.durable(), r)
	reply.Run = x.describe(r)
}

// dropOldest makes room for another run without a key.
func (x jobRuns) dropOldest(j *job) {
	if len(j.regular) >= MaxRuns {
		x.removeRun(j.regular[0])
	}
}

// running returns the run that holds the lock, or nil.
func (x jobRuns) running(l *lock) *run {
	name, key := jobOf(l.name())
	if r := x.jobs.byName[name].find(key); r != nil && r.fence == l.fence && r.result == wire.RunResult_RUNNING {
		return r
	}
	return nil
}

// addRun adds a run to those that the job retains.
func (x jobRuns) addRun(r *run) {
	j := r.job
	if r.key == "" {
		if len(j.regular) == 0 {
			x.jobs.bytes += regularBytes
		}
		j.regular = append(j.regular, r)
		return
	}
	x.jobs.bytes += runBytes + len(r.key)
	at, _ := j.search(r.key)
	j.keyed = slices.Insert(j.keyed, at, r)
	if j.byKey == nil {
		j.byKey = make(map[string]*run)
	}
	j.byKey[r.key] = r
}

// removeRun removes a run from those that the job retains.
func (x jobRuns) removeRun(r *run) {
	j := r.job
	x.dirty.drop(r.durable())
	if r.key == "" {
		j.regular = slices.DeleteFunc(j.regular, func(of *run) bool { return of == r })
		if len(j.regular) == 0 {
			x.jobs.bytes -= regularBytes
		}
		return
	}
	x.jobs.bytes -= runBytes + len(r.key)
	at, _ := j.search(r.key)
	j.keyed = slices.Delete(j.keyed, at, at+1)
	delete(j.byKey, r.key)
}

// forgetRun removes a run of a key. Neither this key nor one below it runs again, as it may have run before.
func (x jobRuns) forgetRun(r *run) {
	x.removeRun(r)
	j := r.job
	if !j.forgets || naturally(j.floor, r.key) < 0 {
		j.forgets, j.floor = true, r.key
		x.dirty.put(j.durable(), j)
	}
}

// forgotten stands for the runs that are not retained.
func forgotten() *run { return &run{result: wire.RunResult_FORGOTTEN} }

// done is the reply to a request for a key that is not to run any more.
func (x jobRuns) done(r *run) *wire.Reply {
	reply := x.reply(wire.Code_JOB_DONE)
	reply.Run = x.describe(r)
	return reply
}

// describe describes a run as it is now.
func (x jobRuns) describe(r *run) *wire.Run {
	if r == nil {
		return new(wire.Run) // so that a request that is queued counts what one that is granted does
	}
	d := &wire.Run{Result: r.result, Attempt: r.attempts, Fence: r.fence, Member: r.member, Client: r.client, Detail: r.detail}
	if r.period != 0 {
		d.Attempt = uint32(min(r.period, 1<<32-1))
	}
	if r.result == wire.RunResult_FORGOTTEN {
		return d
	}
	session := r.session // which changes with the next run, and the reply does not
	d.Session, d.Started = session[:], x.now-r.started
	if r.ended != 0 {
		d.Ended = x.now - r.ended
	}
	return d
}
