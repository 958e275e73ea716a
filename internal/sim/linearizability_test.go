package sim

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conclave-go/conclave/internal/wire"
)

// checkAll checks all partitions of the history.
func (h *clientHistory) checkAll() {
	h.markContention()
	h.sets = newProjections(h)
	for _, name := range locks {
		check(h, name, lockModel(), h.operationsOn(wire.Space_LOCK, name))
	}
	check(h, "kept", lockModel(), h.operationsOn(wire.Space_LOCK, "kept"))
	if h.sim.faults.claimsSets {
		for _, name := range leftNames[:3] {
			check(h, name, lockModel(), h.operationsOn(wire.Space_LOCK, name))
		}
	}
	if h.sim.faults.tasks {
		for _, name := range taskNames {
			check(h, name, lockModel(), h.operationsOn(wire.Space_LOCK, name))
		}
	}
	for _, name := range elections {
		check(h, name, lockModel(), h.operationsOn(wire.Space_ELECTION, name))
	}
	for _, name := range semaphores {
		check(h, name, permitModel(semaphoreLimits()[name]), h.operationsOn(wire.Space_SEMAPHORE, name))
	}
	check(h, "keys", keyModel(), h.keyOperations())
	keys, ops := h.runOperations()
	for _, k := range keys {
		check(h, fmt.Sprintf("%q of %s", k.key, k.job), runModel(), ops[k])
	}
}

var search = flag.Duration("search", 3*time.Second, "of real time, after which a search for a linearization is given up")

// check searches an order of the operations that the model accepts. Where the search finds none, porcupine decides.
func check[S any](h *clientHistory, name string, m stateModel[S], ops []porcupine.Operation) {
	h.partitions++
	h.checked += len(ops)
	calls := make([]*operation, 0, len(ops))
	for _, op := range ops {
		calls = append(calls, op.Input.(*operation))
		if op.Return == never {
			h.pending++
		}
	}
	if search := newOrderSearch(m, calls); search != nil {
		if order := search.run(); order != nil {
			if err := verifyOrder(m, calls, order); err != nil {
				h.sim.fail("%s: an order was found, but %v", name, err)
			}
			return
		}
	}
	model := m.forPorcupine()
	switch porcupine.CheckOperationsTimeout(model, ops, *search) {
	case porcupine.Unknown:
		h.unknown++
		h.sim.t.Logf("seed %d: %s: search over %d operations given up", h.sim.seed, name, len(ops))
	case porcupine.Illegal:
		h.explain(name, model, ops)
	}
}

// verifyOrder returns why an order does not show that operations are linearizable; nil: it does.
func verifyOrder[S any](m stateModel[S], ops []*operation, order []placed[S]) error {
	state, once, called := m.init, make(map[*operation]bool), int64(0)
	for _, p := range order {
		if called = max(called, p.op.invokedAt); p.op.returnedAt < called {
			return fmt.Errorf("%v has returned before another one was called that is earlier in it", p.op)
		}
		if !slices.ContainsFunc(m.next(state, p.op), func(s S) bool { return m.equal(s, p.after) }) {
			return fmt.Errorf("%v does not lead from %v to %v", p.op, state, p.after)
		}
		state, once[p.op] = p.after, true
	}
	for _, op := range ops {
		if !once[op] {
			return fmt.Errorf("%v is not in it", op)
		}
	}
	if len(order) != len(ops) {
		return fmt.Errorf("it has %d operations, and the history %d", len(order), len(ops))
	}
	return nil
}

// explain logs the longest partial linearization and what does not fit.
func (h *clientHistory) explain(name string, model porcupine.Model, ops []porcupine.Operation) {
	_, info := porcupine.CheckOperationsVerbose(model, ops, *search)
	var longest []porcupine.Operation
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	in := make(map[*operation]bool)
	state := model.Init()
	for i, p := range longest {
		op := p.Input.(*operation)
		in[op] = true
		if i >= len(longest)-8 {
			h.sim.t.Logf("%v, then %v", state, op)
		}
		_, state = model.Step(state, op, nil)
	}
	h.sim.t.Logf("%v, and none of these:", state)
	rest := slices.DeleteFunc(slices.Clone(ops), func(p porcupine.Operation) bool { return in[p.Input.(*operation)] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, p := range rest[:min(8, len(rest))] {
		h.sim.t.Logf("    %v", p.Input)
	}
	h.sim.fail("%s: not linearizable: after %d of %d operations none can follow", name, len(longest), len(ops))
}

// keyOperations returns the reads and writes of keys.
func (h *clientHistory) keyOperations() (ops []porcupine.Operation) {
	for _, op := range h.operations {
		read := keyIndex(op.readKey) >= 0 && op.returnedAt != never // programs also look up prefixes, which are no keys
		if read || op.command.GetWrite() != nil && !op.ineffective() {
			ops = append(ops, op.forPorcupine())
		}
	}
	return ops
}

// operationsOn returns the operations on one lock, election or semaphore. It omits
// those without an effect: withdrawn, or refused because of a deadlock or because the session had ended,
// which its sessionSpan records.
func (h *clientHistory) operationsOn(space wire.Space, name string) (ops []porcupine.Operation) {
	for _, op := range h.operations {
		if space == wire.Space_LOCK {
			if one := h.sets.on(name, op); one != nil {
				ops = append(ops, one.forPorcupine())
				continue
			}
		}
		if in, of := op.names(); of != name || in != space || op.ineffective() {
			continue
		}
		ops = append(ops, op.forPorcupine())
	}
	return ops
}

// forPorcupine converts the operation. All of it is input, since the models judge
// the reply themselves.
func (op *operation) forPorcupine() porcupine.Operation {
	return porcupine.Operation{Input: op, Call: op.invokedAt, Return: op.returnedAt}
}

// names returns the lock, election or semaphore that the operation is about.
func (op *operation) names() (wire.Space, string) {
	space := map[bool]wire.Space{true: wire.Space_ELECTION}
	switch c := op.command.GetOp().(type) {
	case *wire.Command_Lock:
		return space[c.Lock.Election], c.Lock.Name
	case *wire.Command_Unlock:
		return space[c.Unlock.Election], c.Unlock.Name
	case *wire.Command_Downgrade:
		return wire.Space_LOCK, c.Downgrade.Name
	case *wire.Command_Extend:
		return c.Extend.Space, c.Extend.Name
	case *wire.Command_Proclaim:
		return wire.Space_ELECTION, c.Proclaim.Name
	case *wire.Command_Withdraw:
		if op.withdraws != nil {
			return op.withdraws.names()
		}
	case *wire.Command_Acquire:
		return wire.Space_SEMAPHORE, c.Acquire.Name
	case *wire.Command_Release:
		return wire.Space_SEMAPHORE, c.Release.Name
	case *wire.Command_Resize:
		return wire.Space_SEMAPHORE, c.Resize.Name
	}
	return 0, ""
}

// ineffective reports whether the operation certainly had no effect.
func (op *operation) ineffective() bool {
	switch op.reply.GetCode() {
	case wire.Code_SESSION_EXPIRED, wire.Code_WITHDRAWN, wire.Code_DEADLOCK:
		return true
	}
	return op.noEffect || op.unconstrained()
}

// unconstrained reports that the model accepts the operation in any state, without an effect. Each such operation doubles
// the search: the withdrawal of a place in a queue, and a refusal because of a waiter.
func (op *operation) unconstrained() bool {
	if op.withdraws.isWithdrawn() {
		return op.reply.GetCode() == wire.Code_OK && op.reply.GetFence() == 0
	}
	if op.lockSet() != nil { // which of the names another one had is not looked at
		return op.reply != nil && op.reply.GetCode() != wire.Code_OK
	}
	return op.contended && op.command.GetLock() != nil && op.reply.GetCode() == wire.Code_LOCKED
}

func (op *operation) isWithdrawn() bool {
	return op != nil && op.reply.GetCode() == wire.Code_WITHDRAWN
}
