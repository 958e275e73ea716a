package client

import (
	"context"

	"github.com/conclave-go/conclave/internal/machine"
)

// Ask evaluates a query and returns its answer, which has the type that the query
// documents. It blocks until a quorum has confirmed that the state at hand is up to
// date; a stale query does not block for the group.
func Ask[A any](ctx context.Context, c *Client, q machine.Query, opts QueryOptions) (answer A, err error) {
	a, err := c.query(ctx, q, opts)
	if err != nil {
		return answer, err
	}
	return a.(A), nil
}

func (c *commands) query(ctx context.Context, q machine.Query, opts QueryOptions) (any, error) {
	if err := c.life.Usable(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, contextFault(Interrupted, ctx)
	}
	leave, err := c.enteredTo(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer leave()
	a, err := c.group.Query(ctx, q, opts)
	switch {
	case err != nil && ctx.Err() != nil && opts.Stale:
		return nil, contextFault(Interrupted, ctx)
	case err != nil && ctx.Err() != nil:
		return nil, c.unavailable(ctx)
	}
	return a, err
}
