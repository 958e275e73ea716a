package conclave

import (
	"context"
	"io"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/survey"
)

// Group is a group, as this process has access to it: it makes handles to the group's locks, semaphores, elections,
// keys and sessions, lists and explains what the group holds, and changes its members. A [Node] and a [Client]
// embed one, so each of its methods is also theirs. Errors wrap ErrClosed once the node or client is closed. All
// methods are safe for concurrent use.
type Group struct {
	client *client.Client
	calls  *calls
	jobs   *survey.Jobs
	isNode bool   // this process has a member, which can have checks
	dir    string // of that member

	readOnly bool // it is a client that changes nothing

	tracing tracing
	admin   admin
}

// admin is what a member does for a process: its own member, or the one that its client is connected to.
type admin interface {
	status(ctx context.Context) (Status, error)
	removeMember(ctx context.Context, id MemberID) error
	transferLeadership(ctx context.Context, to MemberID) error
	backUp(ctx context.Context, w io.Writer) error
}

// Locks makes handles to locks, as a [Group], a [Node], a [Client] and a [Session] do. It is for packages that take
// any of them.
type Locks interface {
	FencedLock(name string, opts ...LockOption) *FencedLock
}

// Access is what packages take that need locks and keys: a [Group], a [Node] or a [Client].
type Access interface {
	Locks
	KV() *KV
}

// ask evaluates a query; see client.Ask.
func ask[A any](ctx context.Context, g *Group, q machine.Query) (A, error) {
	return client.Ask[A](ctx, g.client, q, client.QueryOptions{})
}
