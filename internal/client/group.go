package client

import (
	"context"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// Group is the door to the group. In the other direction the group calls
// [Client.SessionEnded], [Client.Changed], [Client.ShardsChanged], [Client.Recalled] and
// [Client.StateReplaced], in log order, and [Client.Woke].
type Group interface {
	// Submit submits a command of that size, which it has encoded unless the call is
	// refused for the limits on calls. It never blocks: everything further comes
	// through the call, which may fail before Submit returns. Urgent commands go
	// before the others in every queue, and are not refused.
	Submit(size int, encode func() []byte, c Call, urgent bool)
	// Cancel asks to take back a command that has not been sent. The call's
	// Cancelled reports the result, unless an outcome or Fail comes first.
	Cancel(c Call)
	// Query evaluates a query. It blocks until the answer is fixed or ctx is done.
	Query(ctx context.Context, q machine.Query, opts QueryOptions) (any, error)
	// Reregister replaces an incarnation whose registration has expired. Every
	// call under way fails; later ones are made under a new incarnation. register
	// makes the command that registers it, and is not called if another caller
	// has reregistered already.
	Reregister(expired wire.ID, register func() ([]byte, Call))
	// Registered reports the outcome of a registration of this process, on the
	// goroutine that delivers outcomes.
	Registered(r *wire.Reply)
	// Renew is Submit of the urgent command that renews the registration of this process with
	// its sessions. A group may do so without that command.
	Renew(size int, encode func() []byte, c Call)
	// Watch calls yield with each change after an index of the keys that begin with a
	// prefix, in order. It blocks until yield returns false (no error), ctx is done, the
	// group cannot be reached any more, or the changes have been compacted.
	Watch(ctx context.Context, prefix string, after uint64, yield func(fact.KeyChange) bool) error
	// Observe calls yield with the leader of an election, nil: none, and then with each
	// other leader or value; it may leave some out, but not the latest. It blocks as Watch.
	Observe(ctx context.Context, election string, yield func(*fact.Leader) bool) error
	// FollowShards calls yield with the state of a set of shards, and then with each change of it; it may
	// leave some out, and then the state follows again. It blocks as Watch.
	FollowShards(ctx context.Context, set string, yield func(ShardsUpdate) bool) error
	// Process is the ID of this process: of its member, or of a client that is none.
	Process() uint64
	// Level is the group's feature level, as far as this process has applied the log. It
	// never falls.
	Level() uint32
	// Unreachable describes for people why no leader can be asked; "" if that is
	// not known.
	Unreachable() string
}

// Call is one command under way.
type Call = tickets.Call

// QueryOptions qualify a query.
type QueryOptions struct {
	// Stale allows an answer from the state at hand, however old. By default a
	// query is linearizable.
	Stale bool
	// Fixed, if not nil, is called when the answer is fixed, in order with the
	// feed: changes reported before are in the answer, later ones are not.
	Fixed func()
}
