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
func pages[V, C, T any](ctx context.Context, a *access, op, name string, first C, next func(C) machine.Query, at func(V) C, show func(V) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		cursor := first
		for {
			page, err := ask[[]V](ctx, a, next(cursor))
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
