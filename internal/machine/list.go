package machine

import (
	"iter"
	"slices"
)

// list is a doubly linked list whose links are fields of the elements: removing
// an element from the middle of a long list is O(1), and adding one allocates
// nothing. L names the field, since an element may be in several lists.
type list[T any, L links[T]] struct {
	first, last *T
	len         int
}

// link is an element's place in one list.
type link[T any] struct{ prev, next *T }

// links finds the link of an element for one kind of list.
type links[T any] interface{ of(*T) *link[T] }

func (l *list[T, L]) push(x *T) {
	var link L
	link.of(x).prev = l.last
	if l.last == nil {
		l.first = x
	} else {
		link.of(l.last).next = x
	}
	l.last = x
	l.len++
}

func (l *list[T, L]) remove(x *T) {
	var links L
	at := links.of(x)
	if at.prev == nil {
		l.first = at.next
	} else {
		links.of(at.prev).next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		links.of(at.next).prev = at.prev
	}
	*at = link[T]{}
	l.len--
}

// all iterates over the list. The loop may remove the element that it is at.
func (l *list[T, L]) all(v *visits) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		var link L
		for x := l.first; x != nil; {
			v.count()
			next := link.of(x).next
			if !yield(x) {
				return
			}
			x = next
		}
	}
}

func (l *list[T, L]) appendTo(s []*T, v *visits) []*T { return slices.AppendSeq(s, l.all(v)) }

// The lists of the machine.
type (
	endedSessions    struct{}
	sessionsOfMember struct{}
	sessionsOfCheck  struct{}
	holdsOfSession   struct{}
	permitsOfSession struct{}
	waitersInQueue   struct{}
	waitersOfSession struct{}
)

func (endedSessions) of(s *session) *link[session]         { return &s.inEnding }
func (sessionsOfMember) of(s *session) *link[session]      { return &s.inMember }
func (sessionsOfCheck) of(d *dependency) *link[dependency] { return &d.inCheck }
func (holdsOfSession) of(l *lock) *link[lock]              { return &l.inSession }
func (permitsOfSession) of(p *permit) *link[permit]        { return &p.inSession }
func (waitersInQueue) of(w *waiter) *link[waiter]          { return &w.inQueue }
func (waitersOfSession) of(w *waiter) *link[waiter]        { return &w.inSession }
