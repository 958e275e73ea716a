package sim

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conclave-go/conclave/internal/wire"
)

// runState is the model of a key of a job, as the processes see it that run it: like a lock that is closed once a run has reached its
// end. It is nondeterministic in what processes cannot know, as lockState is. How many attempts there were, and when a period has
// passed, the audit checks.
type runState struct {
	owner        *sessionSpan // nil: none is under way
	handle       uint64
	process      wire.ID    // incarnation of the process that runs it
	grant        *operation // the RunJob by which the run began
	fence        uint64     // 0: unknown
	maxFence     uint64     // the largest fence that is known
	done         uint64     // fence of the run that has reached its end; 0: none has
	delayedUntil time.Duration
}

func runModel() stateModel[runState] {
	return stateModel[runState]{
		init: runState{}, before: runState.possibleStates, step: runState.step, equal: func(a, b runState) bool { return a == b },
		hash: hashOf[runState], largest: func(s runState) uint64 { return s.maxFence },
	}
}

// possibleStates are the states in which the operation may find the key: the session of the run may have ended, or another process
// of it may have asked for the key.
func (s runState) possibleStates(op *operation) []runState {
	if s.owner == nil {
		return []runState{s}
	}
	states := withPossibleEnds([]runState{s}, s.owner, op, func(s runState, _ *sessionSpan, until time.Duration) runState { return s.over(until) })
	key, _ := s.grant.runKey()
	if slices.ContainsFunc(s.owner.claims, func(c claim) bool {
		return c.run == key && c.process != s.process && c.at < op.returnedAt && c.at > s.grant.invokedAt
	}) {
		states = append(states, s.over(0))
	}
	return states
}

func (s runState) over(until time.Duration) runState {
	return runState{maxFence: s.maxFence, done: s.done, delayedUntil: until}
}

func (s runState) onlyIf(holds bool) []runState {
	if holds {
		return []runState{s}
	}
	return nil
}

func (s runState) step(op *operation) []runState {
	switch c := op.command.Op.(type) {
	case *wire.Command_RunJob:
		return s.run(op, c.RunJob)
	case *wire.Command_EndRun:
		return s.end(op, c.EndRun)
	case *wire.Command_Withdraw:
		return s.withdraw(op)
	case *wire.Command_DeleteJob:
		return s.delete(op)
	}
	return nil
}

func (s runState) run(op *operation, c *wire.RunJob) []runState {
	var granted []runState
	if s.owner == nil && s.done == 0 && s.delayedUntil <= op.returnedTime {
		granted = runState{owner: op.session, handle: c.Handle, process: op.incarnation, grant: op, maxFence: s.maxFence}.onlyIf(true)
	}
	switch r := op.reply; {
	case r == nil:
		return append(granted, s)
	case r.GetCode() == wire.Code_OK && len(granted) > 0:
		granted[0].fence, granted[0].maxFence = r.GetFence(), r.GetFence()
		return granted[0].onlyIf(r.GetFence() > s.maxFence)
	case r.GetCode() != wire.Code_JOB_DONE:
		return nil
	case r.GetRun().GetResult() == wire.RunResult_DONE:
		return s.onlyIf(s.done == r.GetRun().GetFence())
	}
	return s.onlyIf(s.done == 0 || op.reply.GetRun().GetResult() == wire.RunResult_FORGOTTEN)
}

func (s runState) end(op *operation, c *wire.EndRun) []runState {
	match := s.owner != nil && s.owner == op.session && s.handle == c.Handle && s.process == op.incarnation && (s.fence == 0 || s.fence == c.Fence)
	after := s.over(0)
	if c.Result == wire.RunResult_DONE && c.Key != "" {
		after.done = c.Fence
	}
	switch r := op.reply; {
	case r == nil && match:
		return []runState{after, s}
	case r == nil:
		return s.onlyIf(true)
	case r.GetCode() == wire.Code_OK:
		return after.onlyIf(match && r.GetFence() == c.Fence)
	}
	return s.onlyIf(!match)
}

// withdraw undoes the run that the request was granted, or withdraws a place in the queue, which this model does not contain.
func (s runState) withdraw(op *operation) []runState {
	granted := s.owner != nil && op.withdraws != nil && s.grant == op.withdraws
	switch r := op.reply; {
	case r == nil && granted:
		return []runState{s.over(0), s}
	case r == nil:
		return s.onlyIf(true)
	case r.GetCode() == wire.Code_OK && r.GetFence() != 0:
		return s.over(0).onlyIf(granted && (s.fence == 0 || s.fence == r.GetFence()))
	}
	return s.onlyIf(!granted)
}

// delete forgets the key. A refusal may be due to another one.
func (s runState) delete(op *operation) []runState {
	deleted := runState{maxFence: s.maxFence}
	possible := s.owner == nil && s.delayedUntil <= op.returnedTime
	switch r := op.reply; {
	case r == nil && possible:
		return []runState{deleted, s}
	case r.GetCode() == wire.Code_OK:
		return deleted.onlyIf(possible)
	}
	return s.onlyIf(true)
}

// runOperations returns the operations on each key of a job, and the keys in the order of their first operations.
func (h *clientHistory) runOperations() (keys []runKey, ops map[runKey][]porcupine.Operation) {
	ops = make(map[runKey][]porcupine.Operation)
	for _, op := range h.operations {
		if k, ok := op.runKey(); ok && !op.ineffective() {
			if ops[k] == nil {
				keys = append(keys, k)
			}
			ops[k] = append(ops[k], op.forPorcupine())
		}
	}
	for _, op := range h.operations {
		if c := op.command.GetDeleteJob(); c != nil && !op.noEffect && op.reply.GetCode() != wire.Code_LOCKED {
			for _, k := range keys {
				if k.job == c.Job {
					ops[k] = append(ops[k], op.forPorcupine())
				}
			}
		}
	}
	return keys, ops
}

// runKey returns the key of a job that the operation is about.
func (op *operation) runKey() (runKey, bool) {
	switch c := op.command.GetOp().(type) {
	case *wire.Command_RunJob:
		return runKey{c.RunJob.Job, c.RunJob.Key}, true
	case *wire.Command_EndRun:
		return runKey{c.EndRun.Job, c.EndRun.Key}, true
	case *wire.Command_Withdraw:
		if op.withdraws != nil {
			return op.withdraws.runKey()
		}
	}
	return runKey{}, false
}
