package sim

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// jobAudit checks the runs of jobs with a model of its own, which knows the requests and their outcomes, the ends of sessions and
// group time, and nothing of what the machine retains. It forgets no key.
type jobAudit struct {
	*audit
	requests map[wire.Ticket]*runAsked // that wait
	keys     map[runKey]*keyRuns
	order    []*keyRuns        // in which they were asked for
	floor    map[string]uint64 // by job: the largest number of a key that was forgotten as its time had passed
	before   uint64            // the largest fence before the command
}

// runAsked is a request for a run.
type runAsked struct {
	*wire.RunJob
	ticket  wire.Ticket
	session wire.ID
}

// keyRuns is what the model knows of a key.
type keyRuns struct {
	runKey
	number    uint64
	waiting   []*runAsked
	current   *runAsked // whose run is under way
	fence     uint64    // of that one
	started   int64
	left      bool   // its session was attached since
	attempts  uint32 // of a key: runs that count
	grants    uint32 // runs, whether or not they count
	done      bool
	forgotten bool  // it is not retained any more, though it has run
	ended     int64 // group time at the end of the last run
	keep      int64 // of that one
	due       int64 // of runs with a period: group time before which none starts
	delayed   int64 // group time before which none starts, by lock-delay
}

func newJobAudit(a *audit) *jobAudit {
	return &jobAudit{audit: a, requests: make(map[wire.Ticket]*runAsked), keys: make(map[runKey]*keyRuns), floor: make(map[string]uint64)}
}

// key returns what is known of a key.
func (a *jobAudit) key(c *wire.RunJob) *keyRuns {
	name := runKey{c.Job, c.Key}
	if a.keys[name] == nil {
		number, _ := strconv.ParseUint(strings.TrimPrefix(c.Key, "key-"), 10, 64)
		a.keys[name] = &keyRuns{runKey: name, number: number}
		a.order = append(a.order, a.keys[name])
	}
	return a.keys[name]
}

// command handles what a command ends. The outcomes may state the next runs first.
func (a *jobAudit) command(own wire.Ticket, c *wire.Command, outcomes []fact.Outcome) {
	i := slices.IndexFunc(outcomes, func(o fact.Outcome) bool { return o.Ticket == own })
	if i < 0 || a.answered[own] {
		return
	}
	switch reply := outcomes[i].Reply; {
	case c.GetDeleteJob() != nil:
		a.deleteJob(c.GetDeleteJob().Job, reply)
	case c.GetRunJob() != nil:
		a.claim(c.GetRunJob(), reply)
	case reply.GetCode() != wire.Code_OK:
	case c.GetEndRun() != nil:
		a.endRun(c.GetEndRun(), reply)
	case c.GetWithdraw() != nil:
		a.withdrawn(wire.Ticket{Incarnation: own.Incarnation, Seq: c.GetWithdraw().Seq})
	case c.GetAttachSession() != nil:
		a.sessionAttached(c.GetAttachSession().Id)
	}
}

// claim: a request for what an earlier process of the session runs ends that run as lost, without a lock-delay.
func (a *jobAudit) claim(c *wire.RunJob, reply *wire.Reply) {
	switch reply.GetCode() {
	case wire.Code_OK, wire.Code_QUEUED, wire.Code_JOB_DONE:
	default:
		return
	}
	if k := a.key(c); k.current != nil && k.left && k.current.session == wire.ID(c.Session) {
		a.sim.jobs.claimed++
		a.over(k, wire.RunResult_LOST)
	}
}

// deleteJob: a job is deleted unless a run of it is under way, awaited or delayed. Nothing is known of its keys afterwards.
func (a *jobAudit) deleteJob(job string, reply *wire.Reply) {
	inUse := slices.ContainsFunc(a.order, func(k *keyRuns) bool {
		return k.job == job && (k.current != nil || len(k.waiting) > 0 || max(k.due, k.delayed) > a.m.Now())
	})
	switch code := reply.GetCode(); {
	case code != wire.Code_OK && code != wire.Code_LOCKED:
		return
	case inUse != (code == wire.Code_LOCKED):
		a.sim.fail("%s is in use %t, and its deletion is answered with %v", job, inUse, reply)
	case inUse:
		a.sim.jobs.inUse++
		return
	}
	forgets := func(k *keyRuns) bool { return k.job == job }
	a.sim.jobs.deleted += btoi(slices.ContainsFunc(a.order, forgets))
	a.order = slices.DeleteFunc(a.order, forgets)
	for name := range a.keys { // order: each is forgotten
		if name.job == job {
			delete(a.keys, name)
		}
	}
	delete(a.floor, job)
}

// sessionAttached notes that the runs of a session do not go on, if another process has it from now on.
func (a *jobAudit) sessionAttached(id []byte) {
	if !a.sessions[wire.ID(id)].Incarnation.IsZero() {
		return
	}
	for _, k := range a.order {
		if k.current != nil && k.current.session == wire.ID(id) {
			k.left = true
		}
	}
}

func (a *jobAudit) endRun(c *wire.EndRun, reply *wire.Reply) {
	k := a.keys[runKey{c.Job, c.Key}]
	if k == nil || k.current == nil || k.fence != c.Fence || k.current.session != wire.ID(c.Session) || k.current.Handle != c.Handle || k.left || reply.GetHolds() != 0 {
		a.sim.fail("%v ends what is not the run under way: %+v: %v", c, k, reply)
	}
	a.over(k, c.Result)
}

// withdrawn handles that a request is withdrawn, perhaps after its run began.
func (a *jobAudit) withdrawn(t wire.Ticket) {
	if a.requests[t] != nil {
		a.sim.jobs.withdrawn++
		return // its own outcome follows
	}
	for _, k := range a.order {
		if k.current != nil && k.current.ticket == t {
			a.sim.jobs.undone++
			a.over(k, wire.RunResult_NOT_STARTED)
		}
	}
}

// over handles the end of the run under way.
func (a *jobAudit) over(k *keyRuns, result wire.RunResult) {
	a.sim.trace("%v, fence %d, ends: %v", k.runKey, k.fence, result)
	switch result {
	case wire.RunResult_DONE:
		a.sim.jobs.done++
		k.done = k.key != ""
	case wire.RunResult_FAILED:
		a.sim.jobs.failed++
	case wire.RunResult_NOT_STARTED:
		a.sim.jobs.unstarted++
		k.attempts--
	}
	if result != wire.RunResult_NOT_STARTED && k.key == "" {
		k.due = k.started + k.current.Every
	}
	k.ended, k.keep, k.current, k.left = a.m.Now(), k.current.Keep, nil, false
}

// sessionLost ends the runs of a session that has ended.
func (a *jobAudit) sessionLost(id wire.ID, lockDelay int64) {
	for _, k := range a.order {
		if k.current != nil && k.current.session == id {
			a.sim.jobs.lost++
			a.over(k, wire.RunResult_LOST)
			k.delayed = a.m.Now() + lockDelay
		}
	}
}

// outcome handles an outcome of a request for a run, and reports whether it is one.
func (a *jobAudit) outcome(own wire.Ticket, c *wire.Command, o fact.Outcome) bool {
	if w := a.requests[o.Ticket]; w != nil {
		if !o.More {
			a.settled(w, o.Reply)
		}
		return true
	}
	if o.Ticket != own || a.answered[own] || c.GetRunJob() == nil {
		return false
	}
	w := &runAsked{c.GetRunJob(), own, wire.ID{}}
	w.session, _ = wire.IDFrom(w.Session)
	switch k := a.key(w.RunJob); o.Reply.GetCode() {
	case wire.Code_OK:
		a.sim.jobs.atOnce++
		if i := slices.IndexFunc(k.waiting, a.lives); i >= 0 {
			a.checkOvertakes(k, w)
		}
		a.begun(k, w, o.Reply)
	case wire.Code_QUEUED:
		k.waiting = append(k.waiting, w)
		a.requests[own] = w
	case wire.Code_JOB_DONE:
		a.sim.jobs.refused++
		a.checkClosed(k, w, o.Reply)
	}
	return true
}

// checkOvertakes: only the session of a run that its earlier process has begun overtakes the waiters, and such a session has no TTL.
func (a *jobAudit) checkOvertakes(k *keyRuns, w *runAsked) {
	if a.sessions[w.session].TTL != 0 || k.ended != a.m.Now() {
		a.sim.fail("a run of %v is granted ahead of the waiters: %v", k.runKey, w)
	}
}

// settled handles the last outcome of a request that has waited: the first one is granted, or dismissed.
func (a *jobAudit) settled(w *runAsked, reply *wire.Reply) {
	k := a.key(w.RunJob)
	first := k.waiting[max(0, slices.IndexFunc(k.waiting, a.lives))]
	k.waiting = slices.DeleteFunc(k.waiting, func(o *runAsked) bool { return o == w })
	delete(a.requests, w.ticket)
	switch reply.GetCode() {
	case wire.Code_OK:
		a.sim.jobs.queued++
		a.begun(k, w, reply)
	case wire.Code_JOB_DONE:
		a.sim.jobs.dismissed++
		a.checkClosed(k, w, reply)
	default:
		return
	}
	if first != w {
		a.sim.fail("%v is answered with %v before %v", w, reply, first)
	}
}

// lives reports whether the process that has made the request has its session.
func (a *jobAudit) lives(w *runAsked) bool {
	v, alive := liveSession(a.m, w.session)
	return alive && v.Incarnation == w.ticket.Incarnation
}

// begun: a run begins only when none of its key is under way, the key is not done, an attempt is left, and neither lock-delay nor
// period is in its way.
func (a *jobAudit) begun(k *keyRuns, w *runAsked, reply *wire.Reply) {
	now, fence := a.m.Now(), reply.GetFence()
	switch {
	case k.current != nil:
		a.sim.fail("%v runs with fence %d, and is granted to %v with %d", k.runKey, k.fence, w, fence)
	case k.done || k.forgotten:
		a.sim.fail("%v is done %t, forgotten %t, and runs again: %v", k.runKey, k.done, k.forgotten, reply)
	case w.Attempts != 0 && k.attempts >= w.Attempts:
		a.sim.fail("%v has run %d times, and runs again for %v", k.runKey, k.attempts, w)
	case max(k.due, k.delayed) > now:
		a.sim.fail("%v runs at %d, and must not before %d by its period, and %d by lock-delay", k.runKey, now, k.due, k.delayed)
	case fence <= a.before || fence <= k.fence:
		a.sim.fail("%v is granted with fence %d, not above %d and %d", k.runKey, fence, a.before, k.fence)
	}
	if k.key == "" {
		a.sim.jobs.regular++
		a.sim.jobs.apart += btoi(k.due > k.ended)
	}
	a.sim.jobs.delayed += btoi(k.delayed > 0)
	k.attempts++
	k.grants++
	k.current, k.fence, k.started, k.delayed = w, fence, now, 0
	a.fence = max(a.fence, fence)
	attempt := k.attempts
	if k.key == "" {
		attempt = k.grants
	}
	run := reply.GetRun()
	if run.GetResult() != wire.RunResult_RUNNING || run.GetAttempt() != attempt || run.GetFence() != fence || run.GetEnded() != 0 {
		a.sim.fail("%v is granted as attempt %d with fence %d: %v", k.runKey, attempt, fence, reply)
	}
	a.sim.trace("%v begins with fence %d, attempt %d", k.runKey, fence, attempt)
}

// checkClosed: a request is refused only for a key that is done, has no attempt left, or is forgotten.
func (a *jobAudit) checkClosed(k *keyRuns, w *runAsked, reply *wire.Reply) {
	used := w.Attempts != 0 && k.attempts >= w.Attempts
	switch run := reply.GetRun(); {
	case k.key != "" && k.current != nil && a.isTakenOver(k, w, run):
		a.sim.jobs.exhausted++
		return
	case k.key == "" || k.current != nil:
	case run.GetResult() == wire.RunResult_DONE && k.done && run.GetFence() == k.fence:
		return
	case (run.GetResult() == wire.RunResult_FAILED || run.GetResult() == wire.RunResult_LOST) && used && !k.done && run.GetAttempt() == k.attempts:
		a.sim.jobs.exhausted++
		return
	case run.GetResult() == wire.RunResult_FORGOTTEN && a.mayForget(k):
		a.sim.jobs.forgotten++
		k.forgotten = k.forgotten || k.grants > 0 && (k.attempts > 0 || k.done)
		return
	}
	a.sim.fail("%v is answered with %v, of %+v", w, reply, k)
}

// isTakenOver reports whether the run is the one before, which its session had since before it was attached: the request ended
// that, had no attempt left, and the next one in line was granted the key before it was answered.
func (a *jobAudit) isTakenOver(k *keyRuns, w *runAsked, run *wire.Run) bool {
	return run.GetResult() == wire.RunResult_LOST && bytes.Equal(run.GetSession(), w.Session) && run.GetFence() < k.fence &&
		run.GetAttempt()+1 == k.attempts && w.Attempts != 0 && run.GetAttempt() >= w.Attempts
}

// keptKeys is how many larger keys a job has at least when it has forgotten one for want of room: of 64 retained ones, those that
// ran or were awaited at that time may be smaller.
const keptKeys = machine.MaxRuns - 24

// mayForget reports whether the job may have forgotten the key.
func (a *jobAudit) mayForget(k *keyRuns) bool {
	if k.keep != 0 && k.ended+k.keep <= a.m.Now() && !k.done {
		a.floor[k.job] = max(a.floor[k.job], k.number)
	}
	larger := 0
	for _, other := range a.order {
		larger += btoi(other.job == k.job && other.number > k.number)
	}
	return k.number <= a.floor[k.job] || larger >= keptKeys
}

// check: no request waits for what is free.
func (a *jobAudit) check() {
	for _, k := range a.order {
		if k.current != nil {
			if _, alive := liveSession(a.m, k.current.session); !alive { // granted and lost by one command
				a.sessionLost(k.current.session, 0)
			}
			continue
		}
		if i := slices.IndexFunc(k.waiting, a.lives); i >= 0 && max(k.due, k.delayed) <= a.m.Now() {
			a.sim.fail("%v is free at %d while %d requests wait: %+v", k.runKey, a.m.Now(), len(k.waiting), k)
		}
	}
}

// atRest reports whether no run is under way or awaited.
func (a *jobAudit) atRest() bool {
	return len(a.requests) == 0 && !slices.ContainsFunc(a.order, func(k *keyRuns) bool { return k.current != nil })
}

func jobsOf(m *machine.Machine) []machine.JobView {
	return machine.Ask[[]machine.JobView](m, machine.JobsQuery{})
}
