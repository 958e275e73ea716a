package machine

// heap is a binary heap. With at, elements know their positions, so that any of
// them can be moved or removed in O(log n).
type heap[T any] struct {
	of      []T
	compare func(a, b T) int
	at      func(T) *int // the element's position, from 1; 0: not in the heap. May be nil
	visits  *visits
}

// first returns the smallest element, or the zero T.
func (h *heap[T]) first() (x T) {
	if len(h.of) > 0 {
		x = h.of[0]
	}
	return x
}

// until returns the elements, in no order, that have happened. One that has not
// is smaller than none that has.
func (h *heap[T]) until(happened func(T) bool) (all []T) {
	var walk func(i int)
	walk = func(i int) {
		if i >= len(h.of) {
			return
		}
		if h.visits.count(); happened(h.of[i]) {
			all = append(all, h.of[i])
			walk(2*i + 1)
			walk(2*i + 2)
		}
	}
	walk(0)
	return all
}

func (h *heap[T]) push(x T) {
	h.of = append(h.of, x)
	h.set(len(h.of)-1, x)
	h.up(len(h.of) - 1)
}

func (h *heap[T]) pop() T {
	x := h.of[0]
	h.removeAt(0)
	return x
}

// fix moves an element that is in the heap and has become smaller or larger.
func (h *heap[T]) fix(x T) { h.down(h.up(*h.at(x) - 1)) }

// remove removes an element that is in the heap.
func (h *heap[T]) remove(x T) { h.removeAt(*h.at(x) - 1) }

func (h *heap[T]) removeAt(i int) {
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

func (h *heap[T]) up(i int) int {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

func (h *heap[T]) down(i int) {
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

func (h *heap[T]) less(i, j int) bool {
	h.visits.count()
	return h.compare(h.of[i], h.of[j]) < 0
}

func (h *heap[T]) swap(i, j int) {
	x, y := h.of[i], h.of[j]
	h.set(i, y)
	h.set(j, x)
}

func (h *heap[T]) set(i int, x T) {
	h.of[i] = x
	if h.at != nil {
		*h.at(x) = i + 1
	}
}
