package conclavehttp

import "github.com/conclave-go/conclave"

// cycleStep is a session of a wait-for cycle: what it holds, for which the one before it waits, and what it waits for, which the
// next one holds. The first one is the next of the last.
type cycleStep struct {
	On                process
	Session           conclave.SessionID
	SessionName       string
	Holds, Waits      heldName
	HoldsAs, WaitsFor string // labels of its handles
}

// heldName is a lock or an election.
type heldName struct {
	Name     string
	Election bool
}

// Steps returns a cycle as a graph.
func (a answerData) Steps(c conclave.WaitCycle) []cycleStep {
	steps := make([]cycleStep, len(c))
	for i, w := range c {
		before := c[(i+len(c)-1)%len(c)]
		steps[i] = cycleStep{
			On: a.On(w.Waiter.Node, w.Waiter.Client, w.Waiter.SessionName), Session: w.Waiter.Session, SessionName: w.Waiter.SessionName,
			Holds: heldName{before.Lock, before.Election}, HoldsAs: before.Holder.Label,
			Waits: heldName{w.Lock, w.Election}, WaitsFor: w.Waiter.Label,
		}
	}
	return steps
}
