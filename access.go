package conclave

import (
	"context"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
)

// access is what a Node and a Client have in common: the access of a program to the group.
type access struct {
	client *client.Client
	calls  *calls
	isNode bool // it has a member, which can have checks

	tracing tracing
	// status is the view of the node, or of the member that a client is connected to.
	status func(ctx context.Context) (Status, error)
}

// ask evaluates a query; see client.Ask.
func ask[A any](ctx context.Context, a *access, q machine.Query) (A, error) {
	return client.Ask[A](ctx, a.client, q, client.QueryOptions{})
}
