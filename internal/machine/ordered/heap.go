package ordered

import "slices"

// Heap is a binary heap. If elements know their positions, any of them can be
// moved or removed in O(log n).
type Heap[T comparable] struct {
	of      []T
	compare func(a, b T) int
	at      func(T) *int // may be nil
	visits  *Visits
}

// NewHeap returns an empty heap. at returns where an element keeps its position,
// from 1; 0: it is not in the heap. Without at, which may be nil, Fix, Remove and
// Contains must not be called.
func NewHeap[T comparable](v *Visits, compare func(a, b T) int, at func(T) *int) Heap[T] {
	return Heap[T]{compare: compare, at: at, visits: v}
}

// Len returns the number of elements.
func (h *Heap[T]) Len() int { return len(h.of) }

// All returns the elements, in no order.
func (h *Heap[T]) All() []T { return slices.Clone(h.of) }

// Contains reports whether x is in the heap, and its position is x's.
func (h *Heap[T]) Contains(x T) bool {
	at := *h.at(x)
	return at > 0 && at <= len(h.of) && h.of[at-1] == x
}

// First returns the smallest element, or the zero T.
func (h *Heap[T]) First() (x T) {
	if len(h.of) > 0 {
		x = h.of[0]
	}
	return x
}

// Until returns the elements, in no order, that have happened. One that has not
// is smaller than none that has.
func (h *Heap[T]) Until(happened func(T) bool) (all []T) {
	var walk func(i int)
	walk = func(i int) {
		if i >= len(h.of) {
			return
		}
		if h.visits.Count(); happened(h.of[i]) {
			all = append(all, h.of[i])
			walk(2*i + 1)
			walk(2*i + 2)
		}
	}
	walk(0)
	return all
}

// Push adds an element.
func (h *Heap[T]) Push(x T) {
	h.of = append(h.of, x)
	h.set(len(h.of)-1, x)
	h.up(len(h.of) - 1)
}

// Pop removes and returns the smallest element of a heap that is not empty.
func (h *Heap[T]) Pop() T {
	x := h.of[0]
	h.removeAt(0)
	return x
}

// Fix moves an element that is in the heap and has become smaller or larger.
func (h *Heap[T]) Fix(x T) { h.down(h.up(*h.at(x) - 1)) }

// Remove removes an element that is in the heap.
func (h *Heap[T]) Remove(x T) { h.removeAt(*h.at(x) - 1) }

func (h *Heap[T]) removeAt(i int) {
	var none T
	x, last := h.of[i], len(h.of)-1
	h.swap(i, last)
	h.of[last] = none
	h.of = h.of[:last]
	if h.at != nil {
		*h.at(x) = 0
	}
	if i < last {
		h.down(h.up(i))
	}
}

func (h *Heap[T]) up(i int) int {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

func (h *Heap[T]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.of); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h *Heap[T]) less(i, j int) bool {
	h.visits.Count()
	return h.compare(h.of[i], h.of[j]) < 0
}

func (h *Heap[T]) swap(i, j int) {
	x, y := h.of[i], h.of[j]
	h.set(i, y)
	h.set(j, x)
}

func (h *Heap[T]) set(i int, x T) {
	h.of[i] = x
	if h.at != nil {
		*h.at(x) = i + 1
	}
}
