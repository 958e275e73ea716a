package sim

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// runs is what processes know of the runs of jobs, whatever the log says.
type runs struct {
	trusted   map[uint64]bool   // fences of runs that processes have begun
	last      map[runKey]uint64 // the last of them
	largest   map[runKey]uint64 // of those that processes were granted, begun or not
	done      map[runKey]uint64 // of those that the group has recorded as done, as a process knows
	disturbed int               // processes that crashed with a run, and sessions that were closed with one
}

// mostDisturbed is how many of these there are in a world: each makes the searches of its history longer.
const mostDisturbed = 4

func newRuns() runs {
	return runs{trusted: make(map[uint64]bool), last: make(map[runKey]uint64), largest: make(map[runKey]uint64), done: make(map[runKey]uint64)}
}

// checkRun runs when a process begins a run: no other process trusts one of the same key, by its own clock, unless clocks are
// coarse, and no process knows that the key is done.
func (sim *simulation) checkRun(r *runner, reply *wire.Reply) {
	k, n := r.request.runKey, r.session.program.n
	sim.runs.largest[k] = max(sim.runs.largest[k], r.fence)
	sim.runs.checkDone(sim, k)
	run := reply.GetRun()
	if run != nil && (run.GetFence() != r.fence || run.GetResult() != wire.RunResult_RUNNING || run.GetAttempt() == 0) {
		sim.fail("%d.%d runs %v with fence %d: %v", n, r.n, k, r.fence, reply)
	}
	if r.request.attempts != 0 && run.GetAttempt() > r.request.attempts {
		sim.fail("%d.%d is granted attempt %d of %v, and wants no more than %d", n, r.n, run.GetAttempt(), k, r.request.attempts)
	}
	if !r.trustsRun() {
		return
	}
	for _, m := range sim.allHosts() {
		for _, other := range m.runners() {
			if other != r && other.request.runKey == k && other.trustsRun() {
				sim.fail("%d.%d and %d.%d both run %v, with fences %d and %d", n, r.n, m.n, other.n, k, r.fence, other.fence)
			}
		}
	}
	if sim.runs.trusted[r.fence] || r.fence <= sim.runs.last[k] {
		sim.fail("%d.%d runs %v with fence %d, which is not above %d, or was granted before", n, r.n, k, r.fence, sim.runs.last[k])
	}
	sim.runs.trusted[r.fence], sim.runs.last[k] = true, r.fence
	sim.trace("%d.%d runs %v, fence %d", n, r.n, k, r.fence)
}

// noteDone runs when a process learns that its run is recorded as done.
func (rs runs) noteDone(sim *simulation, k runKey, fence uint64) {
	if k.job == dropped {
		return
	}
	if other, twice := rs.done[k]; twice && other != fence {
		sim.fail("%v is done with fence %d, and was with %d", k, fence, other)
	}
	rs.done[k] = fence
	rs.checkDone(sim, k)
}

// checkDone: a key that is done has no later run.
func (rs runs) checkDone(sim *simulation, k runKey) {
	if done, known := rs.done[k]; known && rs.largest[k] > done {
		sim.fail("%v is done with fence %d, and runs again with %d", k, done, rs.largest[k])
	}
}

func (m *simMember) runners() []*runner {
	if m.process == nil {
		return nil
	}
	var all []*runner
	for _, s := range []*simSession{m.process.program.session, m.process.program.noTTL} {
		if s != nil {
			all = slices.Concat(all, s.runners)
		}
	}
	return all
}

// trustsRun reports whether the process is running the job, and relies on its session.
func (r *runner) trustsRun() bool { return r.state == held && r.session.trusted() }

// leaveRun notes a key that the process asks for in the session that another one may attach.
func (m *simMember) leaveRun(k runKey) {
	if !slices.Contains(m.leftRuns, k) {
		m.leftRuns = append(m.leftRuns, k)
	}
}

// settled notes that nothing of the key is left in the session.
func (r *runner) settled() {
	if r.kept {
		m := r.session.program.simMember
		m.leftRuns = slices.DeleteFunc(m.leftRuns, func(k runKey) bool { return k == r.request.runKey })
	}
}

// jobCounts counts what became of requests for runs.
type jobCounts struct {
	atOnce, queued     int // runs that began
	regular            int // of these, those with a period
	done, failed       int
	unstarted          int // ended as not started
	lost, claimed      int // with their session; left to a process that attached it
	undone, withdrawn  int // withdrawn after their grant, and before
	refused, dismissed int // requests for a key that was closed, and that waited when it was
	exhausted          int // of both, for want of attempts
	forgotten          int // of both, as the key was not retained
	rechecked          int // closed keys that were found in the state of a snapshot
	delayed, apart     int // runs that began after a lock-delay of another one, and after waiting for the period
	deleted, inUse     int // deletions of a job that retained something, and refused ones
}

func (j *jobCounts) add(o jobCounts) {
	j.atOnce += o.atOnce
	j.queued += o.queued
	j.regular += o.regular
	j.done += o.done
	j.failed += o.failed
	j.unstarted += o.unstarted
	j.lost += o.lost
	j.claimed += o.claimed
	j.undone += o.undone
	j.withdrawn += o.withdrawn
	j.refused += o.refused
	j.dismissed += o.dismissed
	j.exhausted += o.exhausted
	j.forgotten += o.forgotten
	j.rechecked += o.rechecked
	j.delayed += o.delayed
	j.apart += o.apart
	j.deleted += o.deleted
	j.inUse += o.inUse
}

// occurred reports whether there was some of each that is not rare.
func (j jobCounts) occurred() bool {
	return j.atOnce > 0 && j.queued > 0 && j.regular > 0 && j.done > 0 && j.failed > 0 && j.unstarted > 0 && j.lost > 0 && j.withdrawn > 0 &&
		j.refused > 0 && j.dismissed > 0 && j.exhausted > 0 && j.apart > 0
}

// allOccurred reports whether there was some of each but of what snapshots show, which is rare.
func (j jobCounts) allOccurred() bool {
	return j.occurred() && j.claimed > 0 && j.undone > 0 && j.forgotten > 0 && j.delayed > 0 && j.deleted > 0 && j.inUse > 0
}
