package gossipfilter

import (
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// Incarnations bounds the incarnations in gossip. memberlist refutes an accusation by a
// higher incarnation, so one message with an incarnation near the end of the numbers would
// end a process's refutations.
//
// Only a process itself raises its incarnation, and only as far as it has been accused. So
// what others say about a process may exceed by maxAhead what it has said itself, on
// connections that prove its member. What it says itself is not bounded: it harms nothing
// else, and a process that has refuted much while this one was unreachable must be able to
// come back. Therefore a process accepts accusations against itself up to the same bound,
// above what it may have said. No other process has received more from it. So whatever the others accept
// about it, it accepts and can refute, and they accept its refutation when they receive it.
type Incarnations struct {
	self string

	mu      sync.Mutex
	refuted uint64                 // guarded by mu; this process's own is at most this
	spoken  map[uint64]incarnation // guarded by mu; by member, of its latest process
}

// incarnation is the highest that a process has said about itself.
type incarnation struct {
	process string
	highest uint64
}

// maxAhead is how far accusations and refutations may be ahead of what this process has
// heard from the refuting one. A suspicion is refuted once, so an incarnation counts false
// suspicions since that process started: a few a day, and at most ten a second if all
// members' links are bad. A member that has missed more hears a process directly as soon as
// it is connected again: it joins those that gossip does not show alive every two seconds.
const maxAhead = 1024

// NewIncarnations returns what is known at the start of the process self.
func NewIncarnations(self string) *Incarnations {
	return &Incarnations{
		self: self, refuted: 1, // memberlist starts with 1
		spoken: make(map[uint64]incarnation),
	}
}

// accept reports whether memberlist may see what a proven process, from, says about another, or
// about itself.
func (i *Incarnations) accept(from, process string, n uint64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	member, _ := wire.MemberOf(process)
	switch last := i.spoken[member]; {
	case process == i.self:
		if n > i.refuted+maxAhead {
			return false
		}
		i.refuted = max(i.refuted, n+1) // memberlist's answer
	case process == from:
		if last.process != process {
			last = incarnation{process: process}
		}
		last.highest = max(last.highest, n)
		i.spoken[member] = last
	case process == last.process:
		return n <= last.highest+maxAhead
	default:
		return n <= maxAhead
	}
	return true
}
