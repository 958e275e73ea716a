package sim

import (
	"hash/maphash"

	"github.com/anishathalye/porcupine"

	"github.com/conclave-go/conclave/internal/wire"
)

// stateModel is a nondeterministic model of an object, for the search and for porcupine.
type stateModel[S any] struct {
	init    S
	before  func(S, *operation) []S // the states in which an operation may find the object: sessions may have ended
	step    func(S, *operation) []S // and those in which it may leave it; none: the reply does not fit
	equal   func(a, b S) bool
	hash    func(S) uint64
	largest func(S) uint64 // the largest fence or modify index that is known
}

// next returns the states in which an operation may leave the object.
func (m stateModel[S]) next(s S, op *operation) (next []S) {
	for _, before := range m.before(s, op) {
		next = append(next, m.step(before, op)...)
	}
	return next
}

func (m stateModel[S]) forPorcupine() porcupine.Model {
	n := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.init} },
		Step: func(state, input, _ any) (next []any) {
			for _, s := range m.next(state.(S), input.(*operation)) {
				next = append(next, s)
			}
			return next
		},
		Equal: func(a, b any) bool { return m.equal(a.(S), b.(S)) },
		Hash:  func(s any) uint64 { return m.hash(s.(S)) },
	}
	return n.ToModel()
}

// hashSeed does not decide the order of a search.
var hashSeed = maphash.MakeSeed()

func hashOf[T comparable](of T) uint64 { return maphash.Comparable(hashSeed, of) }

func hashAll[T comparable](sum uint64, all []T) uint64 {
	for _, one := range all {
		sum = sum*31 + hashOf(one)
	}
	return sum
}

// aboveAll returns the fence or the modify index of a grant or a change that is larger than all before it; 0: there is none.
func (op *operation) aboveAll() uint64 {
	if op.reply.GetCode() != wire.Code_OK {
		return 0
	}
	switch c := op.command.GetOp().(type) {
	case *wire.Command_Lock:
		switch {
		case op.local != nil:
			return op.local.fence
		case c.Lock.Shared && c.Lock.Share == 0:
			return op.reply.GetShare()
		case !c.Lock.Shared && op.reply.GetHolds() == 1:
			return op.reply.GetFence()
		}
	case *wire.Command_Acquire, *wire.Command_RunJob:
		return op.reply.GetFence()
	case *wire.Command_Write:
		if keys := op.reply.GetKeys(); len(keys) > 0 && c.Write.Ops[0].Kind == wire.KeyOp_PUT {
			return keys[0].ModifyIndex
		}
	}
	return 0
}
