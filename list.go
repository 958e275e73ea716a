package conclave

import (
	"context"
	"iter"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
)

// pageSize is how many items of a listing are read at a time. A page is collected on
// the goroutine that applies the log, so its size bounds how long a listing can delay
// other calls.
const pageSize = 256

// ListOption configures a listing. C is what identifies an item of it: [After], and [Stale] for those by name.
type ListOption[C any] interface{ applyList(*listing[C]) }

// listing is how a listing is read.
type listing[C any] struct {
	after C
	query client.QueryOptions
}

type listOption[C any] func(*listing[C])

func (f listOption[C]) applyList(l *listing[C]) { f(l) }

// After has a listing begin after an item, which need not exist any more: a name, a session of which only CreateIndex
// and ID count, or a check of which only Node and Name count. A program that shows a page at a time passes the last
// item of the page before: the cost of a page does not depend on how many items come before it.
func After[C string | SessionInfo | CheckInfo](item C) ListOption[C] {
	return listOption[C](func(l *listing[C]) { l.after = item })
}

func listingOf[C any](opts []ListOption[C]) (l listing[C]) {
	for _, o := range opts {
		o.applyList(&l)
	}
	return l
}

// refused is a listing that yields nothing but an error.
func refused[T any](op, name string, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, fault(op, name, err))
	}
}

// pages yields all items of a listing, page by page, as it is to be read. next makes the
// query for the page behind a cursor, at returns the cursor of an item, and show makes the
// item for the caller.
func pages[V, C, T any](ctx context.Context, g *Group, op, name string, l listing[C], next func(C) machine.Query, at func(V) C, show func(V) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		cursor := l.after
		for {
			page, err := client.Ask[[]V](ctx, g.client, next(cursor), l.query)
			if err != nil {
				var none T
				yield(none, fault(op, name, err))
				return
			}
			for _, v := range page {
				if !yield(show(v), nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
			cursor = at(page[len(page)-1])
		}
	}
}
