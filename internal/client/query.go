package client

import (
	"context"

	"github.com/conclave-go/conclave/internal/machine"
)

// Ask evaluates a query and returns its answer, which has the type that the query
// documents. It blocks until a quorum has confirmed that the state at hand is up to
// date; a stale query does not block for the group.
func Ask[A any](ctx context.Context, c *Client, q machine.Query, opts QueryOptions) (answer A, err error) {
	if err := c.Usable(); err != nil {
		return answer, err
	}
	if ctx.Err() != nil {
		return answer, contextFault(Interrupted, ctx)
	}
	a, err := c.group.Query(ctx, q, opts)
	switch {
	case err != nil && ctx.Err() != nil && opts.Stale:
		return answer, contextFault(Interrupted, ctx)
	case err != nil && ctx.Err() != nil:
		return answer, c.unavailable(ctx)
	case err != nil:
		return answer, err
	}
	return a.(A), nil
}
