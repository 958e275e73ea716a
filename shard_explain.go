package conclave

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// ShardExplanation is the answer to the question why a shard has the owner that it has, or none. Times are by group time, as those of an
// [Explanation] are.
type ShardExplanation struct {
	Set    string
	Reason ShardReason
	Count  int // of the set's shards; 0: no process works on the set
	Next   int // the count that the set changes to; 0: it does not
	Takers int // processes that shards are assigned to
	// Owner is the owner; with Fence 0 there is none, and only Shard and, perhaps, Worker and Reserved are set. Since when it is the owner
	// is not recorded: of two, the one with the larger Fence is it for a shorter time.
	Owner ShardOwner
	// These are of the owner. Shards is how many it has, this one included, and Capacity its weight. NodeName, Alive, TTL and Remaining are
	// as of a [LockOwner], from a read after that of the set: TTL is 0 if the session has ended in between.
	NodeName         string
	Alive            bool
	Shards, Capacity int
	TTL, Remaining   time.Duration
	// Settles is, with ShardSettles, the time until the shard goes to another process. 0: it is about to.
	Settles time.Duration
}

// ShardReason is why a shard has the owner that it has, or none.
type ShardReason int

// The reasons. With the first five the shard has an owner.
const (
	ShardStays    ShardReason = iota + 1 // it is to stay with its owner
	ShardBalances                        // it is to move, as its owner has more than its share
	ShardLeaves                          // it is to move, as its owner leaves: its Run is about to end
	ShardResizes                         // the count changes: its owner is to release it or, without an owner, those of other shards are
	ShardDeserted                        // the process of its owner has ended, and its session, which has no TTL, keeps it until it is attached or closed
	ShardSettles                         // it waits for the return of a process that has ended
	ShardReturns                         // that is back, and gets it when the lock-delay of its former session has passed
	ShardDelayed                         // it is in the lock-delay of its last owner, or is about to be granted
	ShardIdle                            // no process takes it
)

// String returns the reason in lower case, as "settles".
func (r ShardReason) String() string {
	names := [ShardIdle]string{"stays", "balances", "leaves", "resizes", "deserted", "settles", "returns", "delayed", "idle"}
	if r >= 1 && r <= ShardIdle {
		return names[r-1]
	}
	return fmt.Sprintf("ShardReason(%d)", int(r))
}

// String says for people why the shard has its owner or none.
func (e ShardExplanation) String() string {
	const then = "the next owner is granted it when the work on it has returned, or its Grace has passed"
	switch e.Reason {
	case ShardStays:
		return "it stays with its owner"
	case ShardBalances:
		return fmt.Sprintf("it is to move, as its owner has %d of %d shards, and %d processes share them: %s", e.Shards, e.Count, e.Takers, then)
	case ShardLeaves:
		return "it is to move, as its owner leaves: " + then
	case ShardResizes:
		return fmt.Sprintf("the set changes from %d to %d shards, which are assigned when no shard is owned, or in a lock-delay, any more", e.Count, e.Next)
	case ShardDeserted:
		return "the process of its owner has ended, and its session, which has no TTL, keeps the shard until it is attached or closed"
	case ShardSettles:
		return fmt.Sprintf("it waits for the return of %s, whose process has ended, for %v more", e.awaited(), e.Settles.Round(time.Millisecond))
	case ShardReturns:
		return fmt.Sprintf("%s gets it back when the lock-delay of its former session has passed", e.awaited())
	case ShardDelayed:
		return "it is in the lock-delay of its last owner, or about to be granted"
	}
	return "no process takes it"
}

// awaited is the session for which a shard waits.
func (e ShardExplanation) awaited() string {
	if e.Owner.Reserved == "" {
		return "a session without a name"
	}
	return strconv.Quote(e.Owner.Reserved)
}

// Explain reports which process owns a shard, and why it stays, moves or waits. It blocks and fails as [Shards.Owner] does.
func (s *Shards) Explain(ctx context.Context, shard int, opts ...ReadOption) (ShardExplanation, error) {
	e, err := s.explainShard(ctx, shard, opts)
	return e, fault("explain", s.name, err)
}

func (s *Shards) explainShard(ctx context.Context, shard int, opts []ReadOption) (e ShardExplanation, err error) {
	if err := s.validShard(shard); err != nil {
		return e, err
	}
	v, err := s.view(ctx, opts)
	if err != nil {
		return e, err
	}
	owners, err := s.ownersIn(v)
	if err != nil {
		return e, err
	}
	e = ShardExplanation{Set: s.name, Reason: ShardIdle, Owner: owners[shard]}
	if v == nil {
		return e, nil
	}
	e.Count, e.Next, e.Takers = int(v.Count), int(v.Next), v.Takers
	var worker machine.ShardWorkerView // zero: the shard is assigned to none
	if shard < len(v.Shards) {
		for _, w := range v.Workers {
			if number := v.Shards[shard].Worker; number != 0 && w.Number == number {
				worker = w
			}
		}
	}
	if e.Owner.Fence == 0 {
		e.withoutOwner(worker)
		return e, nil
	}
	session, err := client.Ask[*machine.SessionView](ctx, s.group.client, machine.SessionQuery{ID: worker.Session}, readOptions(opts))
	if err != nil {
		return ShardExplanation{}, err
	}
	members, err := s.group.membersByID(ctx)
	if err != nil {
		return ShardExplanation{}, err
	}
	e.owned(worker, session)
	e.NodeName, e.Alive = members[e.Owner.Node].Name, members[e.Owner.Node].Alive
	return e, nil
}

// withoutOwner explains a shard that has no owner.
func (e *ShardExplanation) withoutOwner(reserved machine.ShardWorkerView) {
	switch {
	case e.Next != 0:
		e.Reason = ShardResizes
	case reserved.Number != 0 && reserved.Live:
		e.Reason = ShardReturns
	case reserved.Number != 0:
		e.Reason, e.Settles = ShardSettles, duration(reserved.Remaining)
	case e.Takers > 0:
		e.Reason = ShardDelayed
	}
}

// owned explains a shard that has an owner. A nil session has ended since.
func (e *ShardExplanation) owned(by machine.ShardWorkerView, session *machine.SessionView) {
	e.Shards, e.Capacity = by.Shards, int(by.Capacity)
	unbound := false
	if session != nil {
		e.TTL, e.Remaining = duration(session.TTL), duration(session.Remaining)
		if session.TTL == 0 {
			e.TTL = NoTTL
		}
		unbound = !session.Standalone && session.Incarnation == (wire.ID{})
	}
	switch {
	case e.Next != 0:
		e.Reason = ShardResizes
	case by.Left, unbound:
		e.Reason = ShardDeserted
	case by.Leaving:
		e.Reason = ShardLeaves
	case e.Owner.Moving:
		e.Reason = ShardBalances
	default:
		e.Reason = ShardStays
	}
}
