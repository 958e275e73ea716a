//go:build linux

package main

import (
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// inBothModes reports whether an operation is on a lock that is taken exclusively and shared.
func inBothModes(op *operation) bool { return strings.Contains(op.Name, "/"+shared+"/") }

// grantsShared reports whether an operation is granted a lock in shared mode.
func grantsShared(op *operation) bool {
	return op.Op == opRLock || op.Op == opTryRLock || op.Op == opDowngrade
}

// sharedState is the model of one lock in both modes: the holds that certainly last, as with
// permits, and the fence of the last grant.
type sharedState struct {
	lasting []lastingHold
	fence   uint64
	phase   bool // the fence is that of a shared phase, which the next shared holds join
}

type lastingHold struct {
	hold   string
	shared bool
	left   int // operations of the holder that need it
}

// sharedStep is an operation as the model needs it.
type sharedStep struct {
	*operation
	previous uint64 // the next smaller fence of the lock
	needed   int    // of an acquisition: how many operations of the holder need it
}

func (s sharedStep) String() string { return s.operation.String() }

// sharedSearch leaves out what permitSearch does, and refusals.
func sharedSearch(name string, ops []*operation) search {
	fences, needed := make(map[uint64]bool), make(map[string]int)
	for _, op := range ops {
		if op.result != resultOK {
			continue
		}
		if acquires(op) || grantsShared(op) {
			fences[op.fence] = true
		}
		if op.Op != opRLock && op.Op != opTryRLock && !acquires(op) {
			needed[op.Hold]++
		}
	}
	previous := ordered(fences)
	s := search{name: name, model: porcupine.Model{
		Init: func() any { return sharedState{} },
		Step: func(state, input, _ any) (bool, any) { return state.(sharedState).step(input.(sharedStep)) },
		Equal: func(a, b any) bool {
			s, t := a.(sharedState), b.(sharedState)
			return s.fence == t.fence && s.phase == t.phase && slices.Equal(s.lasting, t.lasting)
		},
	}}
	for _, op := range ops {
		if op.result == resultOK {
			step := sharedStep{op, previous[op.fence], needed[op.Hold]}
			s.ops = append(s.ops, porcupine.Operation{Input: step, Call: op.Time, Return: op.returned})
		}
	}
	return s
}

func (s sharedState) step(op sharedStep) (bool, any) {
	next := op.fence > s.fence && op.previous == s.fence
	switch op.Op {
	case opLock, opTry:
		return next && len(s.lasting) == 0, s.granted(op, false)
	case opRLock, opTryRLock:
		joins := s.phase && op.fence == s.fence
		return joins || next && len(s.lasting) == 0, s.granted(op, true)
	}
	i := slices.IndexFunc(s.lasting, func(h lastingHold) bool { return h.hold == op.Hold })
	if i < 0 || op.Fence != s.fence {
		return false, s
	}
	held := s.lasting[i].shared
	s.lasting = slices.Clone(s.lasting)
	if s.lasting[i].left--; s.lasting[i].left == 0 {
		s.lasting = slices.Delete(s.lasting, i, i+1)
	} else {
		s.lasting[i].shared = held || op.Op == opDowngrade
	}
	switch op.Op {
	case opExtend:
		return true, s
	case opDowngrade:
		s.fence, s.phase = op.fence, true
		return next && !held, s
	case opCheck, opUnlock:
		return !held && (op.Op == opUnlock || op.fence == op.Fence), s
	}
	return held && (op.Op == opRUnlock || op.fence == op.Fence), s
}

// granted returns the state after a grant.
func (s sharedState) granted(op sharedStep, phase bool) sharedState {
	s.fence, s.phase = op.fence, phase
	if op.needed > 0 {
		s.lasting = append(slices.Clone(s.lasting), lastingHold{op.Hold, phase, op.needed})
	}
	return s
}

// enoughForModes is how many grants are in both modes with certainty: three of ten calls are exclusive.
const enoughForModes = 50

// checkModes reports a load that did not use both modes, since the other checks find nothing then.
func checkModes(v *verdict, ops []*operation) {
	exclusive, inShared := 0, 0
	for _, op := range ops {
		if !inBothModes(op) || !acquires(op) && !grantsShared(op) {
			continue
		}
		switch {
		case op.result != resultOK:
		case grantsShared(op):
			inShared++
		default:
			exclusive++
		}
	}
	if exclusive+inShared >= enoughForModes && (exclusive == 0 || inShared == 0) {
		v.violation("%d exclusive grants and %d shared ones of locks that are for both: want some of each", exclusive, inShared)
	}
}
