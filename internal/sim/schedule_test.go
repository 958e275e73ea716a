package sim

import (
	"container/heap"
	"time"
)

// simEvent happens at a time. Events of one time happen in the order in which they
// were scheduled.
type simEvent struct {
	at       time.Duration
	sequence uint64
	run      func()
}

type eventQueue []simEvent

func (e eventQueue) Len() int { return len(e) }

func (e eventQueue) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].sequence < e[j].sequence
}

func (e eventQueue) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e *eventQueue) Push(x any) { *e = append(*e, x.(simEvent)) }

func (e *eventQueue) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (sim *simulation) schedule(d time.Duration, run func()) {
	sim.sequence++
	heap.Push(&sim.events, simEvent{sim.now + d, sim.sequence, run})
}
