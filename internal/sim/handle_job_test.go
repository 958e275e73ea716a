package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// runner is a handle of a session that runs jobs, one run after the other.
type runner struct {
	session *simSession
	n       uint64
	kept    bool // the session has no TTL, and a later process may attach it while a run is under way
	state   handleState
	request runRequest // the last one
	ticket  wire.Ticket
	fence   uint64 // of the run
	call    *simCall
	askedAt time.Duration
}

// runKey is a key of a job; the runs with a period have the key "".
type runKey struct{ job, key string }

// runRequest is what a process asks for.
type runRequest struct {
	runKey
	attempts uint32
	keep     time.Duration
	every    time.Duration
}

// The jobs. The keys of slowJob and keptJob are times, at which several processes want to run them; those of manyJob are more
// than a job retains.
const (
	slowJob  = "job-slow"
	manyJob  = "job-many"
	everyJob = "job-every"
	keptJob  = "job-kept"
	dropped  = "job-dropped" // is deleted at times, and its keys run again
)

// firstRunner is the number of a session's first runner, and of no other handle.
const firstRunner = setHandle + 2

// addRunners has the session run jobs, if the processes of this world do.
func (s *simSession) addRunners(n int, kept bool) {
	if !s.program.sim.faults.jobs {
		return
	}
	for range n {
		s.runners = append(s.runners, &runner{session: s, n: firstRunner + uint64(len(s.runners)), kept: kept})
	}
}

// actRunners has one of the runners act at times.
func (s *simSession) actRunners() {
	p := s.program
	if len(s.runners) == 0 || p.gateway.level() < wire.LevelJobs || p.sim.jobsRNG.IntN(2) == 0 {
		return
	}
	s.runners[p.sim.jobsRNG.IntN(len(s.runners))].act()
	if p.gateway.level() >= wire.LevelDeleteJob && p.sim.jobsRNG.IntN(60) == 0 {
		p.deleteJob()
	}
}

// deleteJob deletes a job, unless it is in use.
func (p *program) deleteJob() {
	p.submit(&wire.Command{Op: &wire.Command_DeleteJob{DeleteJob: &wire.DeleteJob{Job: dropped}}}, false, func(r *wire.Reply) {
		switch r.GetCode() {
		case wire.Code_OK, wire.Code_LOCKED, wire.Code_UNKNOWN_INCARNATION, wire.Code_CODE_UNSPECIFIED:
		default:
			p.sim.fail("member %d deletes a job: %v", p.n, r)
		}
	})
}

// runnersAtRest reports whether no run is under way, awaited, or left by an earlier process.
func (p *program) runnersAtRest() bool {
	for _, s := range []*simSession{p.session, p.noTTL} {
		if s == nil {
			continue
		}
		for _, r := range s.runners {
			if r.state != idle {
				return false
			}
		}
	}
	return len(p.leftRuns) == 0
}

// act does one of the things that the current state permits.
func (r *runner) act() {
	p := r.session.program
	sim, rng := p.sim, p.sim.jobsRNG
	switch r.state {
	case idle:
		switch left := p.leftRuns; {
		case r.kept && len(left) > 0 && (sim.draining || rng.IntN(2) == 0):
			r.choose(left[rng.IntN(len(left))])
			r.ask()
		case !sim.draining:
			r.choose(r.someKey())
			r.ask()
		}
	case acquiring:
		if rng.IntN(8) == 0 && !sim.draining {
			r.cancel()
		}
	case queued:
		if rng.IntN(8) == 0 && !sim.draining || sim.now > r.askedAt+5*time.Second {
			r.withdraw()
		}
	case held:
		switch n := rng.IntN(120); {
		case sim.draining || n < 40:
			r.end(r.someResult())
		case sim.runs.disturbed >= mostDisturbed:
		case sim.faults.crashes && (n == 40 || n < 44 && r.kept):
			sim.runs.disturbed++
			p.crashHolding("a run")
		case n == 44 && sim.faults.forcedCloses:
			sim.runs.disturbed++
			p.forceClose(r.session.id, rng.IntN(4) == 0, func() {})
		}
	}
}

// someKey returns what to run next: at times something older than the others run now.
func (r *runner) someKey() runKey {
	sim := r.session.program.sim
	rng, slow := sim.jobsRNG, uint64(sim.now/(2*time.Second))+7
	if rng.IntN(4) == 0 {
		slow -= rng.Uint64N(3)
	}
	switch {
	case r.kept && rng.IntN(3) == 0:
		return runKey{keptJob, ""}
	case r.kept:
		return runKey{keptJob, keyNumber(slow)}
	}
	switch rng.IntN(5) {
	case 0:
		return runKey{everyJob, ""}
	case 2:
		return runKey{dropped, keyNumber(rng.Uint64N(3))}
	case 1:
		if sim.lastKey++; rng.IntN(4) == 0 {
			return runKey{manyJob, keyNumber(max(1, sim.lastKey-min(sim.lastKey, rng.Uint64N(90))))}
		}
		return runKey{manyJob, keyNumber(sim.lastKey)}
	}
	return runKey{slowJob, keyNumber(slow)}
}

// keyNumber is a key of a number, whose natural order is not that of its bytes.
func keyNumber(n uint64) string { return fmt.Sprint("key-", n) }

// choose chooses the terms of the next request.
func (r *runner) choose(k runKey) {
	rng := r.session.program.sim.jobsRNG
	r.request = runRequest{runKey: k}
	if rng.IntN(4) == 0 {
		r.request.keep = time.Millisecond + randomDuration(rng, 2*time.Second)
	}
	if k.key == "" {
		r.request.every = 200*time.Millisecond + randomDuration(rng, time.Second)
	} else {
		r.request.attempts = rng.Uint32N(4)
	}
}

func randomDuration(rng *rand.Rand, below time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(below)))
}

func (r *runner) ask() {
	s, p := r.session, r.session.program
	if r.kept {
		p.leaveRun(r.request.runKey)
	}
	r.state, r.fence, r.askedAt = acquiring, 0, p.sim.now
	r.call = p.call(&wire.Command{Op: &wire.Command_RunJob{RunJob: &wire.RunJob{
		Job: r.request.job, Key: r.request.key, Session: s.id[:], Handle: r.n,
		Attempts: r.request.attempts, Keep: int64(r.request.keep), Every: int64(r.request.every),
	}}}, false, r.answered)
	name := r.request.job + "\x00" + r.request.key
	r.call.recheck = func(m wire.Rechecker, t wire.Ticket) *wire.Reply { return m.Recheck(t, s.id, "", name) }
	r.call.onUnsent = func() { r.state = idle }
}

func (r *runner) answered(t wire.Ticket, reply *wire.Reply, more bool) {
	sim := r.session.program.sim
	if r.session.replaced() && (r.state == acquiring || r.state == queued) {
		r.state = abandoned
	}
	switch {
	case reply == nil:
		r.state = idle
	case more:
		r.ticket = t
		if r.state == abandoned {
			r.withdraw()
		} else {
			r.state = queued
		}
	case r.state == withdrawing: // the run may have begun first; the withdrawal undoes it
	case reply.GetCode() == wire.Code_OK:
		wanted := r.state != abandoned
		r.state, r.fence = held, reply.GetFence()
		sim.checkRun(r, reply)
		if !wanted {
			r.end(wire.RunResult_NOT_STARTED)
		}
	case reply.GetCode() == wire.Code_JOB_DONE:
		r.state = idle
		r.settled()
		if reply == r.call.rechecked {
			r.checkMissed(t, reply)
		}
	default:
		r.state = idle
		r.checkRefusal(reply)
	}
}

// checkMissed: the end of a key that a process finds in the state of a snapshot is what the log has for its request.
func (r *runner) checkMissed(t wire.Ticket, reply *wire.Reply) {
	sim := r.session.program.sim
	outcomes := sim.history.outcomes[t]
	if len(outcomes) == 0 || outcomes[len(outcomes)-1].GetCode() != wire.Code_JOB_DONE {
		sim.fail("member %d: %v is found to be closed: %v; the log has %v", r.session.program.n, r.request.runKey, reply, outcomes)
	}
	sim.jobs.rechecked++
}

func (r *runner) someResult() wire.RunResult {
	results := []wire.RunResult{wire.RunResult_DONE, wire.RunResult_FAILED, wire.RunResult_FAILED, wire.RunResult_NOT_STARTED}
	return results[r.session.program.sim.jobsRNG.IntN(len(results))]
}

func (r *runner) end(result wire.RunResult) {
	s, p := r.session, r.session.program
	r.state = inFlight
	detail := ""
	if r.n%2 == 1 {
		detail = fmt.Sprint("run ", r.fence)
	}
	k, fence := r.request.runKey, r.fence
	p.submit(&wire.Command{Op: &wire.Command_EndRun{EndRun: &wire.EndRun{
		Job: k.job, Key: k.key, Session: s.id[:], Handle: r.n, Fence: fence, Result: result, Detail: detail,
	}}}, true, func(reply *wire.Reply) {
		r.state = idle
		switch {
		case reply == nil:
		case reply.GetCode() != wire.Code_OK:
			r.checkRefusal(reply)
		case reply.GetFence() != fence || reply.GetHolds() != 0:
			p.sim.fail("member %d: the run of %v with fence %d ends with %v", p.n, k, fence, reply)
		default:
			r.settled()
			if result == wire.RunResult_DONE && k.key != "" {
				p.sim.runs.noteDone(p.sim, k, fence)
			}
		}
	})
}

// withdraw withdraws a queued request, or undoes its run if that came first.
func (r *runner) withdraw() {
	r.state = withdrawing
	call, p := r.call, r.session.program
	p.submit(withdrawal(r.ticket), true, func(reply *wire.Reply) {
		r.state = idle
		switch {
		case reply == nil:
		case !call.finished:
			p.sim.fail("member %d: withdrawn before the last outcome of the request for a run", p.n)
		case reply.GetCode() == wire.Code_NOT_HELD && call.closed(r.ticket):
			r.settled()
		case reply.GetCode() != wire.Code_OK:
			r.checkRefusal(reply)
		default:
			r.settled()
		}
	})
}

// closed reports whether the request was answered in the log with that its key is not to run any more, before it was withdrawn.
func (c *simCall) closed(t wire.Ticket) bool {
	outcomes := c.program.sim.history.outcomes[t]
	return len(outcomes) > 0 && outcomes[len(outcomes)-1].GetCode() == wire.Code_JOB_DONE
}

// cancel abandons the request before its first outcome.
func (r *runner) cancel() {
	call := r.call
	r.state = abandoned
	r.session.program.after(0, func() { r.session.program.gateway.cancel(call) })
}

// checkRefusal accepts an outcome only if the session has ended or the registration has expired.
func (r *runner) checkRefusal(reply *wire.Reply) {
	s, p := r.session, r.session.program
	switch reply.GetCode() {
	case wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION, wire.Code_OWNERSHIP_LOST, wire.Code_NOT_HELD, wire.Code_WITHDRAWN:
		if _, alive := liveSession(p.sim.history.oracle, s.id); !alive || !registered(p.sim.history.oracle, s.incarnation) {
			return
		}
	}
	p.sim.fail("member %d: runner %d, %+v, state %d: %v", p.n, r.n, r.request, r.state, reply)
}
