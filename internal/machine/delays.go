package machine

import (
	"cmp"
	"container/heap"
)

// delayed is a lock, election, permit or key that cannot be acquired until its
// lock-delay ends.
type delayed interface {
	ends() int64
	durable() string // its durable key
	over(*Machine)
}

// delays is a heap of everything under a lock-delay, by end.
type delays []delayed

func (d *delays) push(x delayed) { heap.Push((*delayHeap)(d), x) }
func (d *delays) pop() delayed   { return heap.Pop((*delayHeap)(d)).(delayed) }

// delayHeap implements heap.Interface.
type delayHeap []delayed

func (h delayHeap) Len() int      { return len(h) }
func (h delayHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *delayHeap) Push(x any)   { *h = append(*h, x.(delayed)) }

func (h delayHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(a.ends(), b.ends()), cmp.Compare(a.durable(), b.durable())) < 0
}

func (h *delayHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}

// endDelays ends the lock-delays that have passed, by end, then by key.
func (m *Machine) endDelays() {
	for len(m.delays) > 0 && m.delays[0].ends() <= m.now {
		m.delays.pop().over(m)
	}
}
