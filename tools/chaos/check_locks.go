//go:build linux

package main

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// lockState is the model of one lock, plain or re-entrant. The end of a session is no
// operation: a hold may be lost at any time, which shows by the next grant. But a
// holder that checks its hold by its own clock, or whose release the group confirms,
// must be the owner at that point: a lock that is granted before the holder's deadline
// is found by the holder's next check.
type lockState struct {
	owner string // the hold; "": free
	holds int
	fence uint64 // the largest that was granted
}

// lockStep is an operation as the model needs it.
type lockStep struct {
	*operation
	previous uint64 // fence of the grant before this one
	strict   bool   // a refusal must be explained by the state
}

func (s lockStep) String() string { return s.operation.String() }

// lockSearch leaves out what has no effect that a client can rely on: acquisitions that
// failed, and releases with an unknown outcome, after which the lock is free at some
// time or lost.
func lockSearch(name string, ops []*operation) search {
	fences, certain := make(map[uint64]bool), true
	for _, op := range ops {
		switch op.result {
		case resultOK:
			if acquires(op) {
				fences[op.fence] = true
			}
		case resultMoved, resultClosed:
		case resultRefused:
			certain = certain && !lingers(op) // a process may keep a lock that no hold of its has
		default:
			certain = false
		}
	}
	previous := ordered(fences)
	s := search{name: name, model: porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) { return state.(lockState).step(input.(lockStep)) },
	}}
	for _, op := range ops {
		if op.result != resultOK && op.result != resultRefused || op.Op == opOwner && !fences[op.fence] {
			continue // an owner may be killed before its work begins
		}
		step := lockStep{op, previous[op.fence], op.result == resultRefused && certain && !explained(op, ops)}
		s.ops = append(s.ops, porcupine.Operation{Input: step, Call: op.Time, Return: op.returned})
	}
	return s
}

// acquires reports whether an operation is granted something exclusively: a lock, a shard, or the run of a key.
func acquires(op *operation) bool {
	switch op.Op {
	case opLock, opTry, opOwn, opRun:
		return true
	}
	return false
}

// explained reports whether a refusal may have a reason that the model does not contain:
// an acquisition that was under way at the same time. It may have been granted without
// its process learning of it, lost with that process's session, and granted later
// again, under the next session; its return shows the last grant only. Other such
// reasons are grants that are withdrawn in the background, and losses: with one of
// these in a history, no refusal has to be explained.
func explained(refused *operation, ops []*operation) bool {
	return slices.ContainsFunc(ops, func(op *operation) bool {
		return acquires(op) && op.result == resultOK && op.Hold != refused.Hold && op.Time < refused.returned && op.returned > refused.Time
	})
}

func (s lockState) step(op lockStep) (bool, any) {
	owns := s.owner == op.Hold
	switch op.Op {
	case opLock, opTry, opOwn, opRun:
		return s.lock(op, owns)
	case opOwner:
		return op.fence == s.fence, s
	case opCheck:
		return owns && op.fence == s.fence && op.fence == op.Fence, s
	case opExtend:
		return owns && op.Fence == s.fence, s
	}
	if !owns || op.Fence != s.fence {
		return false, s
	}
	if s.holds--; s.holds == 0 {
		s.owner = ""
	}
	return true, s
}

func (s lockState) lock(op lockStep, owns bool) (bool, any) {
	switch {
	case op.result == resultRefused && op.Limit > 0 && op.Holds >= op.Limit:
		return owns && s.holds == op.Limit, s
	case op.result == resultRefused:
		return !op.strict || s.owner != "" && !owns, s
	case owns && op.fence == s.fence: // re-entered
		full := op.Limit == 0 || s.holds >= op.Limit
		s.holds++
		return !full && s.holds == op.Holds+1, s
	}
	granted := lockState{owner: op.Hold, holds: 1, fence: op.fence}
	return op.Holds == 0 && op.fence > s.fence && op.previous == s.fence, granted
}
