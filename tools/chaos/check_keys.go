//go:build linux

package main

import "github.com/anishathalye/porcupine"

// keyState is the model of one key: a register with a modify index.
type keyState struct {
	exists bool
	value  string
	index  uint64 // 0 with exists: of a write whose index no client has seen
	known  uint64 // the largest index that a client has seen
}

// keyStep is an operation as the model needs it.
type keyStep struct {
	*operation
	index    uint64 // modify index of the write; 0: unknown
	previous uint64 // the known index before it
}

func (s keyStep) String() string { return s.operation.String() }

// keySearch gives each unknown write whose value a client has read the index that came
// with it, and has it return by then. Unknown writes that no client has read may still
// explain a refused swap: they float.
func keySearch(name string, ops []*operation) search {
	seen := make(map[string]*operation) // the first return of a read, by value
	indexes := make(map[uint64]bool)
	for _, op := range ops {
		if op.result != resultOK {
			continue
		}
		indexes[op.index] = true
		if first := seen[op.value]; op.Op == opGet && (first == nil || op.returned < first.returned) {
			seen[op.value] = op
		}
	}
	previous := ordered(indexes)
	s := search{name: name, model: porcupine.Model{
		Init: func() any { return keyState{} },
		Step: func(state, input, _ any) (bool, any) { return state.(keyState).step(input.(keyStep)) },
	}}
	for _, op := range ops {
		step := keyStep{op, op.index, previous[op.index]}
		p := porcupine.Operation{Input: step, Call: op.Time, Return: op.returned}
		switch read := seen[op.Value]; {
		case op.result == resultOK, op.result == resultRefused, op.result == resultAbsent:
			s.ops = append(s.ops, p)
		case op.result != resultUnknown && op.result != resultNoGroup || op.Op == opGet: // no effect
		case read != nil:
			p.Input = keyStep{op, read.index, previous[read.index]}
			p.Return = read.returned
			if read.returned >= op.Time { // else a read before the call: the model must fail at the read
				s.ops = append(s.ops, p)
			}
		default:
			p.Return = never
			p.Input = keyStep{op, 0, 0}
			s.floating = append(s.floating, p)
		}
	}
	return s
}

func (s keyState) step(op keyStep) (bool, any) {
	observed := op.index != 0
	switch {
	case op.Op == opGet && op.result == resultAbsent:
		return !s.exists, s
	case op.Op == opGet:
		return s.exists && s.value == op.value && s.index == op.operation.index, s
	case op.result == resultRefused:
		return op.Op == opSwap && !s.matches(op.Index), s
	case op.Op == opSwap && !s.matches(op.Index):
		return !observed, s // without effect, if none was seen
	case observed && op.previous != s.known:
		return false, s
	}
	return true, keyState{exists: true, value: op.Value, index: op.index, known: max(s.known, op.index)}
}

// matches reports whether a swap that expects this index succeeds. No client can
// expect an index that it has not seen.
func (s keyState) matches(expected uint64) bool {
	if !s.exists {
		return expected == 0
	}
	return expected != 0 && s.index == expected
}
