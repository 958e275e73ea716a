//go:build linux

package main

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// permitState is the model of one semaphore: the acquisitions that certainly last. One
// lasts until it is released or, if it was lost or its release has an unknown outcome,
// until the last time that its holder could confirm it.
type permitState struct {
	lasting []permits
	fence   uint64 // the largest that was granted
}

// permits is one acquisition.
type permits struct {
	hold string
	n    int
	left int // operations of the holder that need it
}

// permitStep is an operation as the model needs it.
type permitStep struct {
	*operation
	previous uint64 // fence of the grant before this one
	needed   int    // of an acquisition: how many operations of the holder need it
}

func (s permitStep) String() string { return s.operation.String() }

func permitSearch(name string, ops []*operation) search {
	fences, needed := make(map[uint64]bool), make(map[string]int)
	for _, op := range ops {
		switch {
		case op.result != resultOK:
		case op.Op == opAcquire && op.fence != 0:
			fences[op.fence] = true
		case op.Op != opAcquire:
			needed[op.Hold]++
		}
	}
	previous := ordered(fences)
	s := search{name: name, model: porcupine.Model{
		Init: func() any { return permitState{} },
		Step: func(state, input, _ any) (bool, any) { return state.(permitState).step(input.(permitStep)) },
		Equal: func(a, b any) bool {
			s, t := a.(permitState), b.(permitState)
			return s.fence == t.fence && slices.Equal(s.lasting, t.lasting)
		},
	}}
	for _, op := range ops {
		if op.result == resultOK && (op.Op != opAcquire || op.fence != 0) {
			s.ops = append(s.ops, porcupine.Operation{Input: permitStep{op, previous[op.fence], needed[op.Hold]}, Call: op.Time, Return: op.returned})
		}
	}
	return s
}

func (s permitState) step(op permitStep) (bool, any) {
	if op.Op == opAcquire {
		return s.acquire(op)
	}
	i := slices.IndexFunc(s.lasting, func(p permits) bool { return p.hold == op.Hold })
	if i < 0 {
		return false, s
	}
	s.lasting = slices.Clone(s.lasting)
	if s.lasting[i].left--; s.lasting[i].left == 0 {
		s.lasting = slices.Delete(s.lasting, i, i+1)
	}
	return true, s
}

func (s permitState) acquire(op permitStep) (bool, any) {
	used := op.N
	for _, p := range s.lasting {
		used += p.n
	}
	if used > op.Limit || op.fence <= s.fence || op.previous != s.fence {
		return false, s
	}
	s.fence = op.fence
	if op.needed > 0 {
		s.lasting = append(slices.Clone(s.lasting), permits{op.Hold, op.N, op.needed})
	}
	return true, s
}
