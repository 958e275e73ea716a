package ordered

import (
	"iter"
	"slices"
)

// List is a doubly linked list whose links are fields of the elements: removing
// an element from the middle of a long list is O(1), and adding one allocates
// nothing. L names the field, since an element may be in several lists.
type List[T any, L Links[T]] struct {
	Len         int // of the list; only its methods change it
	first, last *T
}

// Link is an element's position in one list.
type Link[T any] struct{ prev, next *T }

// Next returns the next element, or nil.
func (l *Link[T]) Next() *T { return l.next }

// Prev returns the previous element, or nil.
func (l *Link[T]) Prev() *T { return l.prev }

// Links finds the link of an element for one kind of list.
type Links[T any] interface{ Of(*T) *Link[T] }

// First returns the first element, or nil.
func (l *List[T, L]) First() *T { return l.first }

// Last returns the last element, or nil.
func (l *List[T, L]) Last() *T { return l.last }

// Push adds an element at the end.
func (l *List[T, L]) Push(x *T) {
	var link L
	link.Of(x).prev = l.last
	if l.last == nil {
		l.first = x
	} else {
		link.Of(l.last).next = x
	}
	l.last = x
	l.Len++
}

// Remove removes an element that is in the list.
func (l *List[T, L]) Remove(x *T) {
	var links L
	at := links.Of(x)
	if at.prev == nil {
		l.first = at.next
	} else {
		links.Of(at.prev).next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		links.Of(at.next).prev = at.prev
	}
	*at = Link[T]{}
	l.Len--
}

// All iterates over the list. The loop may remove the element that it is at.
func (l *List[T, L]) All(v *Visits) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		var link L
		for x := l.first; x != nil; {
			v.Count()
			next := link.Of(x).next
			if !yield(x) {
				return
			}
			x = next
		}
	}
}

// AppendTo appends the elements to s.
func (l *List[T, L]) AppendTo(s []*T, v *Visits) []*T { return slices.AppendSeq(s, l.All(v)) }
