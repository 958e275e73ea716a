package machine

// list is a doubly linked list whose links live inside the elements, so that
// an element is removed from the middle of a long list at the cost of two
// pointers, and adding one allocates nothing.
type list[T any] struct {
	first, last *link[T]
	len         int
}

// link is an element's place in one list.
type link[T any] struct {
	prev, next *link[T]
	of         *T
}

func (l *list[T]) push(at *link[T], of *T) {
	*at = link[T]{prev: l.last, of: of}
	if l.last == nil {
		l.first = at
	} else {
		l.last.next = at
	}
	l.last = at
	l.len++
}

func (l *list[T]) remove(at *link[T]) {
	if at.prev == nil {
		l.first = at.next
	} else {
		at.prev.next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		at.next.prev = at.prev
	}
	*at = link[T]{}
	l.len--
}

// head returns the first element, or nil.
func (l *list[T]) head() *T {
	if l.first == nil {
		return nil
	}
	return l.first.of
}

func (l *list[T]) appendTo(s []*T) []*T {
	for at := l.first; at != nil; at = at.next {
		s = append(s, at.of)
	}
	return s
}
