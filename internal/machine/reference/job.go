package reference

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// Jobs: holds in a space of their own, the results of which are retained.

// Job is what is kept of a job.
type Job struct {
	Name    string
	Forgets bool   // a key was forgotten: those up to the floor that are not retained do not run any more
	Floor   string // in natural order
	Periods uint64 // runs with every so far
	Runs    []*Run // that are retained: of keys by their first runs, with every by period
}

// Run is the last run of a key, or a run with every.
type Run struct {
	Key            string // "": with every
	Period         uint64 // of one with every
	Result         wire.RunResult
	Attempts       uint32
	Fence          uint64
	Session        wire.ID
	Member         uint64
	Client         bool
	Started, Ended int64
	Detail         string
	Keep, Every    int64
}

// jobPlace is what a request for a run of a job has besides.
type jobPlace struct {
	attempts    uint32
	keep, every int64
}

// jobs is the rules of jobs.
type jobs struct{ *Model }

// command executes a command about jobs, or an earlier one.
func (x jobs) command(t wire.Ticket, c *wire.Command) *wire.Reply {
	switch op := c.Op.(type) {
	case *wire.Command_RunJob:
		return x.run(t, op.RunJob)
	case *wire.Command_EndRun:
		return x.end(op.EndRun)
	case *wire.Command_DeleteJob:
		return x.delete(op.DeleteJob)
	}
	return sets(x).command(t, c)
}

func (x jobs) run(t wire.Ticket, c *wire.RunJob) *wire.Reply {
	if bad := checkRun(c); bad != nil {
		return bad
	}
	if _, bad := x.live(c.Session); bad != nil {
		return bad
	}
	if bad := x.visitLock(x.lockOf(c.Job, c.Key)); bad != nil {
		return bad
	}
	if run := x.closed(c); run != nil {
		return &wire.Reply{Code: wire.Code_JOB_DONE, Run: run}
	}
	p := Place{Session: wire.ID(c.Session), Handle: c.Handle, Ticket: t, jobPlace: jobPlace{c.Attempts, c.Keep, c.Every}}
	switch l := x.lockOf(c.Job, c.Key); {
	case l == nil:
		return x.begin(p, c)
	case l.Unclaimed && l.Owner.Session == p.Session:
		return x.takeOver(l, p, c)
	default:
		return x.line(l, p)
	}
}

func checkRun(c *wire.RunJob) *wire.Reply {
	if bad := checkName(c.Job); bad != nil {
		return bad
	}
	if c.Key != "" {
		if bad := checkName(c.Key); bad != nil {
			return bad
		}
	}
	switch {
	case (c.Key == "") != (c.Every != 0),
		c.Every != 0 && (c.Every < MinEvery || c.Every > MaxEvery),
		c.Every != 0 && c.Attempts != 0,
		c.Keep != 0 && (c.Keep < MinKeep || c.Keep > MaxKeep):
		return answer(wire.Code_INVALID)
	}
	return nil
}

// begin grants a run that nothing stands before.
func (x jobs) begin(p Place, c *wire.RunJob) *wire.Reply {
	if c.Key != "" && x.last(c.Job, c.Key) == nil {
		if reply := x.room(c); reply != nil {
			return reply
		}
	}
	if x.tooMany(c) {
		return answer(wire.Code_BUSY)
	}
	l := &Lock{Name: c.Job + "\x00" + c.Key, Job: c.Job, RunKey: c.Key}
	x.Locks = append(x.Locks, l)
	x.reached("granted at once")
	return x.grant(l, p)
}

// takeOver ends the run that an attached session was left, and begins one of the handle in its place. With every, those that
// wait come first, and not before their time.
func (x jobs) takeOver(l *Lock, p Place, c *wire.RunJob) *wire.Reply {
	run := x.last(l.Job, l.RunKey)
	run.Result, run.Ended = wire.RunResult_LOST, x.Now
	switch {
	case l.RunKey == "":
		x.reached("Every taken over")
		x.Model.free(l, later(run.Started, run.Every))
		if l = x.lockOf(c.Job, c.Key); l != nil {
			return x.line(l, p)
		}
		x.reached("Every taken over in its time")
		return x.begin(p, c)
	case run.closed(p.attempts):
		x.reached("taken over and refused")
		reply := &wire.Reply{Code: wire.Code_JOB_DONE, Run: x.describe(run)}
		x.Model.free(l, 0)
		return reply
	}
	x.reached("taken over")
	return x.grant(l, p)
}

// grant makes a run of a request, for which the lock is free.
func (x jobs) grant(l *Lock, p Place) *wire.Reply {
	reply := x.Model.grant(l, p)
	j, s := x.existing(l.Job), x.session(p.Session[:])
	run := x.last(l.Job, l.RunKey)
	if l.RunKey == "" {
		j.Periods++
		run = &Run{Period: j.Periods}
	} else if run == nil {
		run = &Run{Key: l.RunKey}
	}
	if !slices.Contains(j.Runs, run) {
		j.Runs = append(j.Runs, run)
	}
	if l.RunKey == "" && j.count(true) > MaxRuns {
		x.reached("an old period forgotten")
		i := slices.IndexFunc(j.Runs, func(r *Run) bool { return r.Key == "" })
		j.Runs = slices.Delete(j.Runs, i, i+1)
	}
	*run = Run{
		Key: run.Key, Period: run.Period, Attempts: run.Attempts + 1, Result: wire.RunResult_RUNNING, Fence: reply.Fence,
		Session: s.ID, Member: s.Member, Client: s.Client, Started: x.Now, Keep: p.keep, Every: p.every,
	}
	reply.Run = x.describe(run)
	return reply
}

func (x jobs) end(c *wire.EndRun) *wire.Reply {
	bad := checkName(c.Job)
	if bad == nil && c.Key != "" {
		bad = checkName(c.Key)
	}
	switch {
	case bad != nil:
		return bad
	case !slices.Contains([]wire.RunResult{wire.RunResult_DONE, wire.RunResult_FAILED, wire.RunResult_NOT_STARTED}, c.Result):
		return answer(wire.Code_INVALID)
	case len(c.Detail) > MaxRunDetail:
		return answer(wire.Code_TOO_LARGE)
	}
	if _, bad := x.live(c.Session); bad != nil {
		return bad
	}
	l := x.lockOf(c.Job, c.Key)
	switch {
	case !l.heldBy(c.Session, c.Handle):
		return answer(wire.Code_NOT_HELD)
	case l.Fence != c.Fence:
		return answer(wire.Code_OWNERSHIP_LOST)
	}
	defer x.traced(c.Trace)()
	if c.Result == wire.RunResult_NOT_STARTED {
		x.reached("NOT_STARTED")
		return x.undo(l)
	}
	x.reached(c.Result.String())
	reply := &wire.Reply{Code: wire.Code_OK, Fence: l.Fence}
	x.finish(l, c.Result, c.Detail, x.Now, 0)
	return reply
}

// delete deletes a job of which no run is under way, awaited or delayed.
func (x jobs) delete(c *wire.DeleteJob) *wire.Reply {
	if bad := checkName(c.Job); bad != nil {
		return bad
	}
	if slices.ContainsFunc(x.Locks, func(l *Lock) bool { return l.Job == c.Job }) {
		x.reached("a job in use not deleted")
		return answer(wire.Code_LOCKED)
	}
	if j := x.job(c.Job); j != nil {
		x.reached("a job deleted")
		x.Jobs = slices.DeleteFunc(x.Jobs, func(o *Job) bool { return o == j })
	}
	return answer(wire.Code_OK)
}

// finish records the result of a run and releases its lock, with every not before its time.
func (x jobs) finish(l *Lock, result wire.RunResult, detail string, at, until int64) {
	run := x.last(l.Job, l.RunKey)
	run.Result, run.Detail, run.Ended = result, detail, at
	if l.RunKey == "" {
		if next := later(run.Started, run.Every); next > max(x.Now, until) {
			x.reached("Every delayed")
			until = next
		}
	} else if until > x.Now {
		x.reached("lock-delay after a lost run")
	}
	x.Model.free(l, until)
}

// lose ends a run of a session that has ended.
func (x jobs) lose(l *Lock, d *dead) {
	x.reached("LOST")
	x.finish(l, wire.RunResult_LOST, "", d.at, d.until)
}

// undo ends a run that does not count.
func (x jobs) undo(l *Lock) *wire.Reply {
	run, j := x.last(l.Job, l.RunKey), x.job(l.Job)
	if l.RunKey == "" {
		j.Runs = slices.DeleteFunc(j.Runs, func(r *Run) bool { return r == run })
	} else {
		run.Attempts--
		run.Result, run.Detail, run.Ended = wire.RunResult_FAILED, "", x.Now
	}
	reply := &wire.Reply{Code: wire.Code_OK, Fence: l.Fence}
	x.Model.free(l, 0)
	return reply
}

// line puts a request behind those that wait.
func (x jobs) line(l *Lock, p Place) *wire.Reply {
	if len(l.Queue) >= MaxWaiters || x.queued(p.Ticket.Incarnation) >= MaxQueued {
		return answer(wire.Code_BUSY)
	}
	x.arrivals++
	p.arrival, p.Since = x.arrivals, x.stamp()
	l.Queue = append(l.Queue, p)
	return &wire.Reply{Code: wire.Code_QUEUED, Position: uint32(len(l.Queue)), Holder: x.holder(l), Run: x.describe(x.last(l.Job, l.RunKey))}
}

// serve answers the head of the queue, once the lock is free.
func (x jobs) serve(l *Lock) {
	for refused := 0; l.Owner == nil && l.until == 0; {
		if len(l.Queue) == 0 {
			x.drop(l)
			return
		}
		if x.dismissDead(&l.Queue) {
			continue
		}
		next := l.Queue[0]
		run := x.last(l.Job, l.RunKey)
		if l.RunKey != "" && run.closed(next.attempts) {
			if refused > 0 && x.grants <= 0 {
				x.reached("a portion left")
				return
			}
			l.Queue = slices.Clone(l.Queue[1:])
			refused++
			x.grants--
			x.reached("JOB_DONE in the queue: " + run.Result.String())
			x.final(next.Ticket, &wire.Reply{Code: wire.Code_JOB_DONE, Run: x.describe(run)})
			continue
		}
		l.Queue = slices.Clone(l.Queue[1:])
		x.reached("granted from the queue")
		reply := x.grant(l, next)
		reply.Trace = x.trace
		x.final(next.Ticket, reply)
	}
}

// drop removes an idle lock, and a key that has not run.
func (x jobs) drop(l *Lock) {
	x.Locks = slices.DeleteFunc(x.Locks, func(o *Lock) bool { return o == l })
	j := x.job(l.Job)
	j.Runs = slices.DeleteFunc(j.Runs, func(r *Run) bool { return r.Key == l.RunKey && r.Key != "" && r.Attempts == 0 })
	if !slices.ContainsFunc(x.Locks, func(o *Lock) bool { return o.Job == j.Name }) && len(j.Runs) == 0 && !j.Forgets && j.Periods == 0 {
		x.Jobs = slices.DeleteFunc(x.Jobs, func(o *Job) bool { return o == j })
	}
}

// due reports that the lock of a run waits only for the next entry.
func (x jobs) due(l *Lock) bool {
	return l.Job != "" && l.Owner == nil && l.until == 0 && len(l.Queue) > 0
}

// DueRuns counts the locks of runs that have requests left for the next entries.
func DueRuns(r *Model) (n int) {
	for _, l := range r.Locks {
		if (jobs{r}).due(l) {
			n++
		}
	}
	return n
}

// describe describes a run as it is now.
func (x jobs) describe(run *Run) *wire.Run {
	w := &wire.Run{
		Result: run.Result, Attempt: run.Attempts, Fence: run.Fence, Session: bytes.Clone(run.Session[:]), Member: run.Member, Client: run.Client,
		Started: x.Now - run.Started, Detail: run.Detail,
	}
	if run.Period != 0 {
		w.Attempt = uint32(run.Period)
	}
	if run.Ended != 0 {
		w.Ended = x.Now - run.Ended
	}
	return w
}

// Running returns the locks of runs that are held, as asked: left by a process that has ended, or not.
func Running(r *Model, left bool) (all []*Lock) {
	for _, l := range r.Locks {
		if l.Job != "" && l.Owner != nil && l.Unclaimed == left {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *Lock) int { return cmp.Compare(a.Fence, b.Fence) })
	return all
}
