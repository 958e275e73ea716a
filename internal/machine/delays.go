package machine

import (
	"cmp"
	"container/heap"
)

// delays holds the locks under a lock-delay, the first to end on top. A lock
// leaves it only when its delay ends: until then nobody can acquire it.
type delays []*lock

func (d *delays) push(l *lock) { heap.Push((*delayHeap)(d), l) }
func (d *delays) pop() *lock   { return heap.Pop((*delayHeap)(d)).(*lock) }

// delayHeap is what container/heap asks for.
type delayHeap []*lock

func (h delayHeap) Len() int      { return len(h) }
func (h delayHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *delayHeap) Push(x any)   { *h = append(*h, x.(*lock)) }

func (h delayHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(a.delayUntil, b.delayUntil), cmp.Compare(a.key, b.key)) < 0
}

func (h *delayHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return l
}
