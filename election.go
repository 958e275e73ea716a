package conclave

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Election is a handle to an election of the group: one of its candidates leads, and
// every member can see which one, and the value that it proclaims.
//
// A handle is one candidate. Goroutines that share a handle wait for each other like
// two candidates, except that Campaign on a handle that leads proclaims. An idle
// handle costs nothing and need not be closed. All methods are safe for concurrent
// use.
//
// Leadership is a lease, like holding a lock. A leader can be paused at any moment and
// act when another candidate leads already. Lost reports that early, but only a
// resource that checks the fence can refuse. Elections and locks have separate names.
type Election struct {
	lock *FencedLock   // in the name space of elections
	runs chan struct{} // has a token while a call of Run campaigns or leads
}

// Leader is the leader of an election. The zero Leader, whose Fence is 0, means that
// there is none.
type Leader struct {
	Name    string // of the election
	Value   []byte // with which it campaigned, or that it has proclaimed since
	Fence   Fence
	Session SessionID
	Node    MemberID
	// Member is Node as this node, or the member that the client asks, sees it: with the name and the
	// address. It has no more than the ID if Node is a client, or a member that is not listed any more,
	// or if this process is a client and no member has answered within a second. It is zero if Node is.
	Member Member
	// SessionName and Client are as in [LockInfo], and set in what [Group.Elections] lists only.
	SessionName string
	Client      bool
}

// Election returns a new handle to the election of that name, 1 to 512 bytes of UTF-8
// without NUL. It does not block; an invalid name is reported when the handle is used,
// as ErrInvalid or ErrTooLarge.
//
// The handle leads under the node's own session, which has the TTL Config.SessionTTL
// and no lock-delay.
func (g *Group) Election(name string) *Election {
	return newElection(g, nil, name)
}

// Election returns a new handle to the election of that name, like [Group.Election],
// which leads under this session. After the session was invalidated, no candidate
// leads until its lock-delay has passed, and Campaign fails with ErrSessionExpired,
// after ErrLockOwnershipLost for as long as a Resign is owed.
func (s *Session) Election(name string) *Election {
	return newElection(s.group, s.lease, name)
}

func newElection(g *Group, lease *client.Lease, name string) *Election {
	return &Election{lock: newLock(g, lease, wire.Space_ELECTION, name, nil), runs: make(chan struct{}, 1)}
}

// Campaign waits for leadership and returns its fence. It blocks until this candidate
// leads, ctx is done, or the session ends. Candidates are served in FIFO order across
// the group. value, up to 64 KiB, is what observers see once it leads. On a handle that
// leads already, Campaign proclaims the value and returns the current fence.
//
// A non-nil error means that the handle does not lead because of this call, as with
// [FencedLock.Lock]. Errors: ctx's, with ErrUnavailable if no quorum was reachable, or
// ErrUnknown if a value was being proclaimed; ErrLockOwnershipLost if the handle led and
// lost leadership, until Resign was called; ErrSessionExpired for a handle of a session
// that has ended; ErrBusy with too many candidates or calls under way; ErrTooLarge for
// the value; ErrInvalid; ErrClosed.
func (e *Election) Campaign(ctx context.Context, value []byte) (Fence, error) {
	f, err := e.campaign(ctx, value)
	return f, fault("campaign", e.lock.name, err)
}

func (e *Election) campaign(ctx context.Context, value []byte) (Fence, error) {
	began, span := e.lock.group.calls.begin(), e.lock.span(ctx, CallCampaign, "campaign")
	f, err := e.candidate(ctx, value, span)
	span.end(err)
	e.lock.group.calls.returned(CallCampaign, began, err)
	return f, err
}

func (e *Election) candidate(ctx context.Context, value []byte, s *span) (Fence, error) {
	if err := validCandidate(value); err != nil {
		return 0, err
	}
	for {
		_, err := e.lock.current()
		if client.IsKind(err, client.NotHeld) {
			return e.lock.acquire(ctx, true, value, s)
		}
		var f uint64                                       // of what it leads now: another call may have resigned and campaigned since
		if err == nil || client.IsKind(err, client.Lost) { // of a node that is closed it returns that
			f, err = e.lock.handle.Proclaim(ctx, value)
		}
		if !client.IsKind(err, client.NotHeld) { // else it resigned meanwhile
			return Fence(f), err
		}
	}
}

func validCandidate(value []byte) error {
	if len(value) > machine.MaxCandidate {
		return fmt.Errorf("%w: value of %d bytes, the limit is %d", ErrTooLarge, len(value), machine.MaxCandidate)
	}
	return nil
}

// Proclaim replaces the value that observers see, up to 64 KiB. It blocks until the
// group has agreed. ErrNotHeld: the handle does not lead; no effect.
// ErrLockOwnershipLost: it led and lost leadership. Further errors: ErrTooLarge,
// ErrBusy, ErrClosed, and ctx's with ErrUnavailable or ErrUnknown.
func (e *Election) Proclaim(ctx context.Context, value []byte) error {
	err := validCandidate(value)
	if err == nil {
		err = e.lock.bad
	}
	if err == nil {
		_, err = e.lock.handle.Proclaim(ctx, value)
	}
	return fault("proclaim", e.lock.name, err)
}

// Resign gives up leadership. The candidate at the head of the queue leads next. It
// blocks until the group has agreed or ctx is done.
//
// Leadership counts as given up from the call on, whatever Resign returns. If ctx is
// done, even before the call, the resignation is still submitted and pursued in the
// background until it is applied or the session has ended, and the error wraps ctx's
// and ErrUnknown. ErrNotHeld: the handle does not lead; no effect.
// ErrLockOwnershipLost: leadership was lost before; the handle may campaign again.
func (e *Election) Resign(ctx context.Context) error {
	return fault("resign", e.lock.name, e.resign(ctx))
}

func (e *Election) resign(ctx context.Context) error {
	began, span := e.lock.group.calls.begin(), e.lock.span(ctx, CallResign, "resign")
	err := e.lock.unlock(ctx, span)
	span.end(err)
	e.lock.group.calls.returned(CallResign, began, err)
	return err
}

// Lost returns a channel that is closed when leadership is lost with the session, as
// [FencedLock.Lost] is: by this process's own clock before the group may let another
// candidate lead. Resign does not close it. It is nil while the handle does not lead.
func (e *Election) Lost() <-chan struct{} { return e.lock.Lost() }

// Run campaigns with the value, calls lead once it leads, and resigns when lead has
// returned. The context passed to lead carries the fence as well ([FenceFromContext]). It is
// done when ctx is, and, with the cause ErrLockOwnershipLost, when leadership is lost;
// lead should then return. After a loss Run campaigns again. It blocks until
//
//   - lead returned an error other than the loss, or than the end of its context
//     after a loss: Run returns that error as it is;
//   - lead returned nil without a loss: Run returns nil, or ctx's error if ctx is done;
//   - ctx is done otherwise: Run returns ctx's error;
//   - the session has ended, for a handle of a session: ErrSessionExpired;
//   - Campaign failed otherwise: Run returns its error.
//
// Run waits for lead to return, however long that takes, and then for the resignation,
// at most until the session's deadline if it has one. The error of a resignation that failed
// is joined with that of lead.
//
// Calls of Run on one handle wait for each other, and lead one after the other. A call within lead waits for itself.
func (e *Election) Run(ctx context.Context, value []byte, lead func(ctx context.Context, f Fence) error) error {
	if err := e.lock.group.client.Turn(ctx, e.runs); err != nil {
		return fault("run", e.lock.name, err)
	}
	defer func() { <-e.runs }()
	for {
		f, err := e.campaign(ctx, value)
		if err != nil {
			return fault("run", e.lock.name, withContextError(ctx, err))
		}
		lost, err := e.term(ctx, f, lead)
		switch {
		case lost && ctx.Err() == nil:
			continue
		case lost, err == nil && ctx.Err() != nil:
			return fault("run", e.lock.name, withContextError(ctx, err))
		}
		return err
	}
}

// withContextError adds the error of a context that is done, unless err has it.
func withContextError(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return joined(contextError(ctx), convert(err)) // fault converts one cause only
}

// term is the time from a grant to the resignation. lost means that nothing but the
// loss of leadership ended it.
func (e *Election) term(ctx context.Context, f Fence, lead func(ctx context.Context, f Fence) error) (lost bool, err error) {
	leading, stop := client.WithLoss(ctx, e.Lost(), func() error { return ErrLockOwnershipLost })
	defer stop()
	defer func() {
		resigned := convert(e.resign(context.WithoutCancel(ctx)))
		reported := errors.Is(context.Cause(leading), ErrLockOwnershipLost)
		if errors.Is(resigned, ErrLockOwnershipLost) || reported {
			lost = err == nil || errors.Is(err, ErrLockOwnershipLost) || reported && errors.Is(err, context.Canceled)
			return
		}
		if !errors.Is(resigned, ErrNotHeld) { // or lead has resigned itself
			err = joined(err, fault("run", e.lock.name, resigned))
		}
	}()
	return false, lead(ContextWithFence(leading, f), f)
}

// Leader returns the leader, which may be on any node. It is linearizable and blocks
// until a quorum has confirmed that this node is up to date. Leadership may have moved
// by the time that it returns.
//
// ErrNoLeader: no candidate leads, also while a lock-delay keeps the next one waiting.
// ErrUnavailable: ctx was done before a quorum was reachable. ErrInvalid and
// ErrTooLarge: the name is invalid. ErrBusy: too many reads are under way. ErrClosed.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	err := e.lock.bad
	var leader *fact.Leader
	if err == nil {
		leader, err = ask[*fact.Leader](ctx, e.lock.group, machine.LeaderQuery{Election: e.lock.name})
	}
	if err == nil && leader == nil {
		err = ErrNoLeader
	}
	if err != nil {
		return Leader{}, fault("leader", e.lock.name, err)
	}
	return describeLeader(ctx, e.lock.group, leaderOf(e.lock.name, leader)), nil
}

// Observe yields the current leader, with Fence 0 if there is none, and then each
// change: another leader, another value of the same one, or none.
//
// Changes are yielded in order. An observer that is slower than the changes, or whose
// node received a snapshot because it lagged too far, misses some, but always sees the
// latest.
//
// The sequence ends with an error: ctx's, with ErrUnavailable if no quorum was
// reachable before it was done; ErrClosed; or ErrInvalid or ErrTooLarge as with Leader.
// Observe has no goroutine and does not poll.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		err := e.observe(ctx, func(l Leader) bool { return yield(l, nil) })
		if err != nil {
			yield(Leader{}, fault("observe", e.lock.name, err))
		}
	}
}

func (e *Election) observe(ctx context.Context, yield func(Leader) bool) error {
	if e.lock.bad != nil {
		return e.lock.bad
	}
	g := e.lock.group
	return g.client.Observe(ctx, e.lock.name, func(l *fact.Leader) bool {
		return yield(describeLeader(ctx, g, leaderOf(e.lock.name, l)))
	})
}

// describeTime bounds how long a leader waits to be described.
const describeTime = time.Second

// describeLeader sets Member. It fails no call, and delays none for long: what is known of a member is no part of the
// outcome, and a client may just have lost the member that it would ask.
func describeLeader(ctx context.Context, g *Group, l Leader) Leader {
	if l.Node == 0 {
		return l
	}
	return describing(ctx, g).lead(l)
}

// describing returns the members as far as they are known within describeTime.
func describing(ctx context.Context, g *Group) membersByID {
	bounded, cancel := context.WithTimeout(ctx, describeTime)
	defer cancel()
	members, _ := g.membersByID(bounded)
	return members
}

func (m membersByID) lead(l Leader) Leader {
	l.Member = m[l.Node]
	l.Member.ID = l.Node
	return l
}

func leaderOf(election string, l *fact.Leader) Leader {
	if l == nil {
		return Leader{Name: election}
	}
	return Leader{
		Name: election, Value: clone(l.Value), Fence: Fence(l.Fence),
		Session: SessionID(l.Session), Node: MemberID(l.Member),
	}
}

// Elections lists the elections of the group whose names begin with prefix and that
// have a leader, by name. It reads pages, as [Group.Locks] does.
func (g *Group) Elections(ctx context.Context, prefix string, opts ...ListOption[string]) iter.Seq2[Leader, error] {
	l := listingOf(opts)
	if err := validPrefixes(prefix, l.after); err != nil {
		return refused[Leader]("list elections", prefix, err)
	}
	all := pages(ctx, g, "list elections", prefix, l, func(after string) machine.Query {
		return machine.LeadersQuery{Prefix: prefix, After: after, Limit: pageSize}
	}, func(v machine.LeaderView) string { return v.Name },
		func(v machine.LeaderView) Leader {
			l := leaderOf(v.Name, v.Leader)
			l.SessionName, l.Client = v.SessionName, v.Client
			return l
		})
	return func(yield func(Leader, error) bool) {
		var members membersByID
		for l, err := range all {
			if err == nil && l.Fence == 0 {
				continue // in the lock-delay of its last leader
			}
			if err == nil && members == nil {
				if members = describing(ctx, g); members == nil {
					members = membersByID{}
				}
			}
			if err == nil {
				l = members.lead(l)
			}
			if !yield(l, err) {
				return
			}
		}
	}
}
