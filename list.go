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

// pages yields all items of a listing, page by page. next makes the query for the page
// after the last item, nil for the first page; show makes the item for the caller.
func pages[V, T any](ctx context.Context, n *Node, op, name string, next func(last *V) machine.Query, show func(V) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var last *V
		for {
			page, err := ask[[]V](ctx, n, next(last))
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
			last = &page[len(page)-1]
		}
	}
}
