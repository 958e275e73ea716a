package conclave

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Explanation is the answer to the question why a lock is not available: its holder, and
// the queue for it, and whether the holder waits itself. For a lock that is free and has no waiters, only Lock is set.
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
	// Shared is by how many holders the lock is held in shared mode, as in [LockInfo]. Holder, Holds and Lingering
	// are then those of the first one, and Fence is that of all.
	Shared  int
	Holders []LockOwner   // with Shared: the first ones, 1,024 at most
	Delay   time.Duration // lock-delay left; with Held, of others that have shared the lock
	SetWith []string      // other names of the LockSet that Holder has: the first ones, 3 at most
	Waiters int           // in the queue of the group
	Sets    int           // of the Waiters, those that are a LockSet
	Queue   []LockOwner   // the first waiters, at most 1,000, in the order of the queue
	// Cycle is a shortest cycle of sessions that wait for each other through the session of
	// Holder, or of one of Holders, beginning with what that one waits for; nil if there is none. It is as
	// [Group.WaitCycles] describes.
	Cycle WaitCycle
}

// LockOwner is a handle that holds a lock or waits for it, with its session.
type LockOwner struct {
	Node     MemberID // of the handle; with an unbound session, of its last process
	NodeName string   // "" if it has none, or has left the group
	// Alive is the view of this node's failure detector; not authoritative. The group goes by
	// the session's lease and checks. The failure detector does not watch clients: with Client
	// Alive is false, and Renewed shows the last sign of life.
	Alive  bool
	Client bool   // Node is a client; see [Dial]
	Label  string // of the handle; see [WithLabel]
	Shared bool   // the handle holds the lock in shared mode, or waits to
	Set    int    // names of the LockSet that the handle holds, or waits for, as a whole; 0: a single lock
	// Reserved says of a handle that waits that the lock is reserved for its LockSet: no later request is granted
	// it before, in a mode that excludes the set's.
	Reserved    bool
	Session     SessionID
	SessionName string
	// Since is how long the handle has held the lock, or has waited for it. Negative: it is not
	// known, since it began when a member of the group still ran a build that did not record it.
	// For a lock that lingers, it is how long the node has kept it.
	Since time.Duration
	TTL   time.Duration // of the session; may be NoTTL
	// Remaining is the time until the session expires, unless it is renewed; 0 with NoTTL.
	Remaining time.Duration
	// EndsIn is, of a holder, the time until the hold ends by [MaxHold] at the latest, whatever becomes of the session;
	// 0: it does not end so.
	EndsIn time.Duration
	// Renewed is how long ago the session was renewed, as each leader change also does.
	// Negative: no process is bound to the session, so that nothing renews it.
	Renewed time.Duration
}

// maxQueue is how many waiters an Explanation has. They are collected on the goroutine that
// applies the log.
const maxQueue = 1000

// Explain reports who holds the lock of that name and which handles wait for it. It is
// linearizable and blocks like [FencedLock.Info], with the same errors.
func (g *Group) Explain(ctx context.Context, lock string) (Explanation, error) {
	e, err := g.explain(ctx, lock)
	return e, fault("explain", lock, err)
}

func (g *Group) explain(ctx context.Context, lock string) (Explanation, error) {
	if err := validName(lock); err != nil {
		return Explanation{}, err
	}
	v, err := ask[*machine.ExplainView](ctx, g, machine.ExplainQuery{Name: lock, Limit: maxQueue})
	switch {
	case err != nil:
		return Explanation{}, err
	case v == nil:
		return Explanation{Lock: lock}, nil
	}
	members, err := g.membersByID(ctx)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{
		Lock: lock, Held: v.Held, Holds: int(v.Holds), Fence: Fence(v.Fence), Lingering: v.Lingering,
		Delay: duration(v.Delay), Waiters: v.Waiters, Queue: make([]LockOwner, len(v.Queue)),
		Cycle: members.cycle(v.Cycle), Shared: v.Shared, SetWith: v.With, Sets: v.Sets,
	}
	for _, h := range v.Holders {
		e.Holders = append(e.Holders, members.owner(h.OwnerView))
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

func (g *Group) membersByID(ctx context.Context) (membersByID, error) {
	status, err := g.admin.status(ctx)
	if err != nil {
		return nil, err
	}
	members := make(membersByID)
	for _, m := range status.Members {
		members[m.ID] = m
	}
	return members, nil
}

func (m membersByID) owner(v machine.OwnerView) LockOwner {
	member := m[MemberID(v.Member)]
	o := LockOwner{
		Node: MemberID(v.Member), NodeName: member.Name, Alive: member.Alive, Client: v.Client,
		Label: v.Label, Shared: v.Shared, Session: SessionID(v.Session), SessionName: v.Name, Since: duration(v.Since),
		TTL: duration(v.TTL), Remaining: duration(v.Remaining), Renewed: duration(v.Renewed),
		EndsIn: duration(v.EndsIn), Set: v.Set, Reserved: v.Reserved,
	}
	if v.TTL == 0 {
		o.TTL = NoTTL
	}
	return o
}

// WaitCycle is a cycle of sessions that wait for each other: the session of each step's
// Waiter waits for a lock that Holder has, whose session is that of the next step's Waiter,
// and the first one's after the last.
//
// It is a possible deadlock: it is one if the goroutine that holds a lock is the one that
// waits for the next, or waits for that one. Goroutines that share a session, such as all
// that use the node's own, may also hold and wait independently; then the cycle dissolves by
// itself.
type WaitCycle []Wait

// Wait is a step of a WaitCycle.
type Wait struct {
	Lock           string
	Election       bool // Lock is an election, and the holder leads
	Waiter, Holder LockOwner
}

// String prints the cycle for people, in one line.
func (c WaitCycle) String() string {
	var s strings.Builder
	for i, w := range c {
		if i > 0 {
			s.WriteString("; ")
		}
		kind := "lock"
		if w.Election {
			kind = "election"
		}
		fmt.Fprintf(&s, "%v waits for %s %q of %v", w.Waiter, kind, w.Lock, w.Holder)
	}
	return s.String()
}

// String names the label, the session and the member or client.
func (o LockOwner) String() string {
	process := "member"
	if o.Client {
		process = "client"
	}
	session := fmt.Sprintf("session %v of %s %s", o.Session, process, cmp.Or(o.NodeName, o.Node.String()))
	if o.Label != "" {
		return fmt.Sprintf("%q under %s", o.Label, session)
	}
	return session
}

// maxCycles is how many cycles WaitCycles returns.
const maxCycles = 1000

// WaitCycles returns cycles of sessions that wait for each other's locks and leaderships:
// for each session that is in one, a shortest one, and 1,000 at most. A session that waits
// only for locks of its own is in none. Requests for permits of semaphores are not considered,
// nor what waits within a node for a lock that lingers there.
//
// It reads pages, each linearizable and blocking as [FencedLock.Info] does, with the same
// errors; each cycle existed as a whole at one moment. The cost is that of the requests that
// wait, however many locks are held. A cycle is not found if a search from each of its
// sessions, the nearest sessions first, would look at more than 16,384 places in queues, of
// which each session counts for 8.
func (g *Group) WaitCycles(ctx context.Context) ([]WaitCycle, error) {
	var cycles []WaitCycle
	known := make(map[string]bool) // a cycle is listed for each of its sessions
	members, err := g.membersByID(ctx)
	if err != nil {
		return nil, fault("wait cycles", "", err)
	}
	for after := (wire.Ticket{}); ; {
		page, err := ask[machine.WaitCyclesView](ctx, g, machine.WaitCyclesQuery{After: after})
		if err != nil {
			return nil, fault("wait cycles", "", err)
		}
		for _, views := range page.Cycles {
			c := members.cycle(views).rotated()
			if key := c.key(); !known[key] && len(cycles) < maxCycles {
				known[key] = true
				cycles = append(cycles, c)
			}
		}
		if after = page.Next; page.Done || len(cycles) >= maxCycles {
			return cycles, nil
		}
	}
}

func (m membersByID) cycle(views []machine.WaitView) WaitCycle {
	var c WaitCycle
	for _, v := range views {
		c = append(c, Wait{
			Lock: v.Name, Election: v.Space == wire.Space_ELECTION,
			Waiter: m.owner(v.Waiter), Holder: m.owner(v.Holder),
		})
	}
	return c
}

// RefuseDeadlock has Lock and RLock of the handle fail with ErrDeadlock, and without an effect, if their wait
// would close a cycle: if each of several sessions held, in either mode, what the one before waits for. The error is a
// *[DeadlockError], which lists the cycle. Release what the session holds then, and begin again; the others
// get their locks. Of two requests that would deadlock at the same time, one is refused.
//
// It is for sessions that stand for one task each: goroutines that share a session may wait and hold
// independently, and what looks like a cycle then dissolves by itself. The group decides once, when it would queue
// the request, about the wait of this handle alone. A later request without the option can close a cycle, so give
// it to all handles of such sessions.
//
// Not found is a cycle through permits of a semaphore, through a lock that lingers ([Linger]), whose node may not use it
// at the moment, and one of a single session, which waits for a lock that it holds itself, by this handle or another. A hold counts until its Unlock has been applied. If the search would look at more than 16,384 places in queues and shared
// holds, of which each session counts for 8, or those of one entry of the log at more than 32,768 for all
// members or all clients, the request waits as without the option.
//
// The option excludes Linger: with both, a use of the handle returns ErrInvalid. While a member of the group runs a build
// that does not know it, Lock and RLock fail with ErrUpgradeRequired. TryLock and TryRLock do not wait, so it changes nothing
// for them.
func RefuseDeadlock() LockOption {
	return lockOption(func(o *lockOptions) { o.config.RefuseDeadlock = true })
}

// DeadlockError is the reason why a handle with [RefuseDeadlock] was refused. It wraps ErrDeadlock.
type DeadlockError struct {
	// Cycle is a shortest cycle that the wait would have closed, from that wait on, when the group decided. Of a long
	// one it has the first steps: as many as 4 KiB have room for, of which a step takes 256 bytes, its names and
	// its labels, so two at least. NodeName, Alive and EndsIn of the owners are not set.
	Cycle WaitCycle
	// Sessions is how many sessions the whole cycle has.
	Sessions int
}

// Error lists the cycle.
func (e *DeadlockError) Error() string {
	text := fmt.Sprintf("%v: %v", ErrDeadlock, e.Cycle)
	if more := e.Sessions - len(e.Cycle); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// Unwrap returns ErrDeadlock.
func (e *DeadlockError) Unwrap() error { return ErrDeadlock }

// deadlock is the error of a wait that was refused.
func deadlock(r *wire.Reply) error {
	return &DeadlockError{Cycle: membersByID{}.cycle(machine.Cycle(r)), Sessions: int(r.GetCycle().GetLength())}
}

// rotated returns the cycle from the smallest session ID on.
func (c WaitCycle) rotated() WaitCycle {
	first := 0
	for i := range c {
		if bytes.Compare(c[i].Waiter.Session[:], c[first].Waiter.Session[:]) < 0 {
			first = i
		}
	}
	return slices.Concat(c[first:], c[:first])
}

// key distinguishes cycles that begin with the smallest session ID.
func (c WaitCycle) key() string {
	var key []byte
	for _, w := range c {
		key = append(key, w.Waiter.Session[:]...)
	}
	return string(key)
}

// describeHolder says for people which owner a refusal names.
func describeHolder(r *wire.Reply) string {
	h := r.GetHolder()
	id, ok := wire.IDFrom(h.GetSession())
	if !ok {
		return ""
	}
	return describeOwner(SessionID(id), MemberID(h.GetMember()), Fence(h.GetFence()), h.GetShared(), h.GetWaiting())
}

// describeOwner says for people who holds a lock, or has requested it before.
func describeOwner(session SessionID, node MemberID, fence Fence, shared, waiting bool) string {
	text := "held by session " + session.String()
	switch {
	case waiting && shared:
		text = "requested before by session " + session.String()
	case waiting:
		text = "requested exclusively before by session " + session.String()
	case shared:
		text = "held shared by session " + session.String()
	}
	if node != 0 {
		text += fmt.Sprintf(" of member or client %s", node)
	}
	if fence != 0 {
		text += fmt.Sprintf(" with fence %v", fence)
	}
	return text
}

// describeWait says for people what a request was waiting for.
func describeWait(r *wire.Reply) string {
	if r == nil {
		return ""
	}
	text := "queued"
	if r.GetPosition() != 0 { // behind a lock that lingers it is not known
		text = fmt.Sprintf("queued at position %d", r.GetPosition())
	}
	if holder := describeHolder(r); holder != "" {
		text += ", " + holder
	}
	return text
}
