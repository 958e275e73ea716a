package machine

import (
	"iter"

	"github.com/conclave-go/conclave/internal/fact"
)

// listing is an answer without pages that is not gathered: it is encoded from the state of the
// query, so that as many as clients ask for take no memory for all that they list.
type listing struct {
	each iter.Seq[any]
	size int // as AnswerSize counts it, or more than MaxAnswer
}

// ForClient returns a query whose answer EncodeAnswer encodes as that of q. It is not to be
// sent, and has no other use.
func ForClient(q Query) Query {
	switch q := q.(type) {
	case KeysQuery:
		return listingQuery{func(keys snapshot) iter.Seq[any] { return anyOf(q.each(keys)) }}
	case KeyNamesQuery:
		return listingQuery{func(keys snapshot) iter.Seq[any] { return anyOf(q.each(keys)) }}
	}
	return q
}

type listingQuery struct {
	of func(snapshot) iter.Seq[any]
}

// Begin implements [Query].
func (q listingQuery) Begin(m *Machine) func() any {
	keys := m.snapshot()
	return func() any {
		l := &listing{each: q.of(keys)}
		for item := range l.each {
			if l.size += itemSize(item); l.size > MaxAnswer {
				break
			}
		}
		return l
	}
}

func anyOf[V any](values iter.Seq[V]) iter.Seq[any] {
	return func(yield func(any) bool) {
		for v := range values {
			if !yield(v) {
				return
			}
		}
	}
}

// itemSize returns the approximate size of an item of an answer without pages.
func itemSize(item any) int {
	const entry = 100 // bytes, of its numbers
	switch item := item.(type) {
	case *fact.Entry:
		return entry + size(item)
	case string:
		return len(item)
	}
	return 0
}
