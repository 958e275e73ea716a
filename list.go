package conclave

import (
	"context"
	"iter"

	"github.com/conclave-go/conclave/internal/machine"
)

// pageSize is how many items of a listing are read at a time. A page is collected on
// the goroutine that applies the log, so its size bounds how long a listing can delay
// other calls.
const pageSize = 256

// ListOption configures a listing. C is what identifies an item of it.
type ListOption[C any] interface{ applyList(*C) }

type listOption[C any] func(*C)

func (f listOption[C]) applyList(c *C) { f(c) }

// After has a listing begin after an item, which need not exist any more: a name, a session of which only CreateIndex
// and ID count, or a check of which only Node and Name count. A program that shows a page at a time passes the last
// item of the page before: the cost of a page does not depend on how many items come before it.
func After[C string | SessionInfo | CheckInfo](item C) ListOption[C] {
	return listOption[C](func(c *C) { *c = item })
}

func listAfter[C any](opts []ListOption[C]) (item C) {
	for _, o := range opts {
		o.applyList(&item)
	}
	return item
}

// refused is a listing that yields nothing but an error.
func refused[T any](op, name string, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, fault(op, name, err))
	}
}

// pages yields all items of a listing, page by page, from the cursor first on. next makes the
// query for the page behind a cursor, at returns the cursor of an item, and show makes the
// item for the caller.
func pages[V, C, T any](ctx context.Context, g *Group, op, name string, first C, next func(C) machine.Query, at func(V) C, show func(V) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		cursor := first
		for {
			page, err := ask[[]V](ctx, g, next(cursor))
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
