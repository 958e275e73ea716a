package conclave

import (
	"context"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
)

// Explanation is the answer to the question why a lock is not available: its holder, and
// the queue for it. For a lock that is free and has no waiters, only Lock is set.
//
// Times are by group time, which the entries of the log carry: they are as of the last entry
// that was applied, and stand still while there is none. That is at most a third of the
// shortest TTL of a session.
type Explanation struct {
	Lock   string
	Held   bool
	Holder LockOwner // zero if not held, like Holds, Fence and Lingering
	Holds  int
	Fence  Fence
	// Lingering says that the holder's node keeps the lock for a while and grants it by itself
	// ([Linger]). Only the node knows whether a handle holds it at the moment, and which
	// handles wait there.
	Lingering bool
	Delay     time.Duration // lock-delay left
	Waiters   int           // in the queue of the group
	Queue     []LockOwner   // the first waiters, at most 1,000, in the order of the queue
}

// LockOwner is a handle that holds a lock or waits for it, with its session.
type LockOwner struct {
	Node     MemberID // of the handle; with an unbound session, of its last process
	NodeName string   // "" if it has none, or has left the group
	// Alive is the view of this node's failure detector; not authoritative. The group goes by
	// the session's lease and checks.
	Alive       bool
	Session     SessionID
	SessionName string
	TTL         time.Duration // of the session; may be NoTTL
	// Remaining is the time until the session expires, unless it is renewed; 0 with NoTTL.
	Remaining time.Duration
	// Renewed is how long ago the session was renewed, as each leader change also does.
	// Negative: no process is bound to the session, so that nothing renews it.
	Renewed time.Duration
}

// maxQueue is how many waiters an Explanation has. They are collected on the goroutine that
// applies the log.
const maxQueue = 1000

// Explain reports who holds the lock of that name and which handles wait for it. It is
// linearizable and blocks like [FencedLock.Info], with the same errors.
func (n *Node) Explain(ctx context.Context, lock string) (Explanation, error) {
	e, err := n.explain(ctx, lock)
	return e, fault("explain", lock, err)
}

func (n *Node) explain(ctx context.Context, lock string) (Explanation, error) {
	if err := validName(lock); err != nil {
		return Explanation{}, err
	}
	v, err := ask[*machine.ExplainView](ctx, n, machine.ExplainQuery{Name: lock, Limit: maxQueue})
	switch {
	case err != nil:
		return Explanation{}, err
	case v == nil:
		return Explanation{Lock: lock}, nil
	}
	members := n.membersByID()
	e := Explanation{
		Lock: lock, Held: v.Held, Holds: int(v.Holds), Fence: Fence(v.Fence), Lingering: v.Lingering,
		Delay: duration(v.Delay), Waiters: v.Waiters, Queue: make([]LockOwner, len(v.Queue)),
	}
	if v.Held {
		e.Holder = members.owner(v.Owner)
	}
	for i, w := range v.Queue {
		e.Queue[i] = members.owner(w)
	}
	return e, nil
}

// membersByID is the members as this node sees them.
type membersByID map[MemberID]Member

func (n *Node) membersByID() membersByID {
	members := make(membersByID)
	for _, m := range n.Status().Members {
		members[m.ID] = m
	}
	return members
}

func (m membersByID) owner(v machine.OwnerView) LockOwner {
	member := m[MemberID(v.Member)]
	o := LockOwner{
		Node: MemberID(v.Member), NodeName: member.Name, Alive: member.Alive,
		Session: SessionID(v.Session), SessionName: v.Name,
		TTL: duration(v.TTL), Remaining: duration(v.Remaining), Renewed: duration(v.Renewed),
	}
	if v.TTL == 0 {
		o.TTL = NoTTL
	}
	return o
}
