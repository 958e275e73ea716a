package machine

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/wire"
)

// end records the result of a run and ends it.
func (x jobRuns) end(c *wire.EndRun) *wire.Reply {
	if r := x.checkRun(c.Job, c.Key); r != nil {
		return r
	}
	switch {
	case c.Result != wire.RunResult_DONE && c.Result != wire.RunResult_FAILED && c.Result != wire.RunResult_NOT_STARTED:
		return x.refuse(wire.Code_INVALID, "a run ends as done, failed or not started")
	case len(c.Detail) > wire.MaxRunDetail:
		return x.refuse(wire.Code_TOO_LARGE, "the text of a result is too long: at most 128 bytes")
	case !utf8.ValidString(c.Detail):
		return x.refuse(wire.Code_INVALID, "the text of a result is not UTF-8")
	}
	s, refusal := x.live(c.Session)
	if s == nil {
		return refusal
	}
	l, refusal := x.holdOf(s, &x.jobs.locks, jobName(c.Job, c.Key), c.Handle, c.Fence)
	if l == nil {
		return refusal
	}
	x.finish(l, c.Result, c.Detail)
	x.cause = x.traceOf(c.Trace)
	r := x.releaseHold(l)
	x.cause = nil
	return r
}

// finish records how the run ends that holds the lock.
func (x jobRuns) finish(l *lock, result wire.RunResult, detail string) {
	r := x.running(l)
	if r == nil {
		return
	}
	if result == wire.RunResult_NOT_STARTED {
		if r.key == "" {
			x.removeRun(r)
			return
		}
		r.attempts--
		result, detail = wire.RunResult_FAILED, ""
	}
	r.result, r.detail, r.ended = result, detail, x.now
	if l.owner.dead() { // perhaps entries ago
		r.ended = l.owner.endedAt
	}
	x.dirty.put(r.durable(), r)
}

// ended ends the run that holds the lock, which is lost unless it has a result, and returns until when the lock is delayed.
func (x jobRuns) ended(l *lock, until int64) int64 {
	x.finish(l, wire.RunResult_LOST, "")
	name, key := jobOf(l.name())
	if r := x.jobs.byName[name].find(key); r != nil && key == "" && r.fence == l.fence {
		until = max(until, after(r.started, r.every))
	}
	return until
}

// left drops what is not retained without the lock, which has ceased to exist.
func (x jobRuns) left(l *lock) {
	name, key := jobOf(l.name())
	j := x.jobs.byName[name]
	j.locks--
	if r := j.find(key); r != nil {
		if r.lock = nil; r.attempts == 0 {
			x.removeRun(r)
		}
	}
	if j.locks == 0 && len(j.keyed)+len(j.regular) == 0 && !j.forgets && j.periods == 0 {
		x.jobs.remove(j)
		x.dirty.drop(j.durable())
	}
}

// hasDeleteJob reports whether the group is at the level of DeleteJob.
func (x jobRuns) hasDeleteJob() bool { return x.levels.agreed >= wire.LevelDeleteJob }

// delete deletes a job with what it retains, also which keys are forgotten: they can run again. While it has a lock it stays, as
// that has a run, a waiter, a lock-delay or a period.
func (x jobRuns) delete(c *wire.DeleteJob) *wire.Reply {
	if r := x.checkName(c.Job); r != nil {
		return r
	}
	j := x.jobs.byName[c.Job]
	switch {
	case j == nil:
		return x.reply(wire.Code_OK)
	case j.locks > 0:
		return x.refuse(wire.Code_LOCKED, "runs of the job are under way, awaited or delayed")
	}
	for _, r := range slices.Concat(j.keyed, j.regular) {
		x.removeRun(r)
	}
	x.jobs.remove(j)
	x.dirty.drop(j.durable())
	return x.reply(wire.Code_OK)
}

// missed is what a request for a run received that has obtained nothing and was not withdrawn, by the name of its lock: in a
// session that lives, the end of the key.
func (x jobRuns) missed(name string) *wire.Reply {
	job, key := jobOf(name)
	r := cmp.Or(x.jobs.byName[job].find(key), forgotten())
	reply := &wire.Reply{Code: wire.Code_JOB_DONE, Run: x.describe(r)}
	if r.result == wire.RunResult_RUNNING { // another one has begun since the request was dismissed for its attempts
		reply.Run.Result = wire.RunResult_LOST
	}
	return reply
}
