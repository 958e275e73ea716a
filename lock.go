package conclave

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// FencedLock is a handle to a lock of the group, after Hazelcast's FencedLock. A
// handle is one owner: two handles of one name exclude each other, on one node as on
// two.
//
// By default goroutines that share a handle exclude one another as well, as with a
// sync.Mutex. A handle made with [Reentrant] can be locked again by its owner; give
// it to one goroutine, or to goroutines that act as one. A call that waits when another
// one of such a handle is granted the lock is a re-entry then.
//
// An idle handle costs nothing and need not be closed. All methods are safe for
// concurrent use.
type FencedLock struct {
	group  *Group
	name   string
	bad    error // what is wrong with the name or an option
	handle client.Lock
}

// LockOption configures a lock handle.
type LockOption interface{ applyLock(*lockOptions) }

type lockOptions struct {
	config   client.LockConfig
	set      bool     // of a LockSet
	shared   []string // names that it takes shared
	isShared bool     // Shared is there, perhaps without a name
	err      error
}

type lockOption func(*lockOptions)

func (f lockOption) applyLock(o *lockOptions) { f(o) }

// Reentrant lets the handle's owner lock again what it holds, up to limit holds at a
// time; 0 is no limit. Each hold needs an Unlock of its own.
func Reentrant(limit int) LockOption {
	return lockOption(func(o *lockOptions) {
		if limit < 0 || limit > math.MaxInt32 {
			o.err = fmt.Errorf("%w reentrant limit: want 0 (none) to %d, got %d", ErrInvalid, math.MaxInt32, limit)
			return
		}
		o.config.Reentrant, o.config.Limit = true, uint32(limit)
	})
}

const maxLinger = time.Hour

// Linger has the node keep the lock for up to d after an Unlock, 1 ms to an hour; 0 is not
// at all. Until then each handle to the lock with this option, of the same session, acquires
// it without asking the group, in some microseconds, and one that waits gets it from the one
// that unlocks. Unlock does not block then.
//
// Each acquisition has a larger fence than the one before, of a block that the node got with
// the lock. The next one that acquires the lock from the group gets a still larger one. So the
// fences of one lock always grow. Between two locks, those that a node grants by itself say
// nothing about which was first.
//
// When another owner asks for the lock, by Lock or TryLock, the group recalls it: the node
// serves those that wait here at that moment, in their order, and then releases it, and for a
// second nothing lingers. What comes later here queues in the group. So waiters are served in
// FIFO order on one node, and the requests of different nodes in the order in which the group
// received them; on one node a request may join those that the group has queued already. A
// TryLock elsewhere is refused while the node keeps the lock, also if no handle holds it.
//
// The deadline of the session, Lost, Fence, and the lock-delay apply to the node's hold, and
// with it to each that it grants. What ends the session at once without the node's knowledge
// (see Lost) does not keep the node from granting until it learns of that, or until the
// deadline: another owner may hold the lock by then, with a larger fence, and Unlock returns
// nil nevertheless. A node that dies, or is partitioned, keeps others waiting for the
// session's TTL even when no handle held the lock. Under a session with NoTTL, and before
// each member of the group runs a build that knows of it, a lock does not linger.
func Linger(d time.Duration) LockOption {
	return lockOption(func(o *lockOptions) {
		if d != 0 && d < minDuration || d > maxLinger {
			o.err = fmt.Errorf("%w time to linger: want 0 (not at all) or %v to %v, got %v", ErrInvalid, minDuration, maxLinger, d)
			return
		}
		o.config.Linger = d
	})
}

// WithLabel gives the handle a label for people, such as "invoice run 2026-11": up to 128 bytes
// of UTF-8 without NUL; "" is none. [Group.Explain] and [LockInfo] show it with what the handle
// holds, and Explain also with what it waits for.
//
// It is sent with each request for the lock, so it costs its bytes there and in the state
// of each member. It is not shown with what was requested before each member of the group ran
// a build that knows of labels. What the node keeps by [Linger] has none: it belongs to all the
// handles that share it.
func WithLabel(label string) LockOption {
	return lockOption(func(o *lockOptions) {
		if err := validLabel(label); err != nil {
			o.err = err
			return
		}
		o.config.Label = label
	})
}

func validLabel(label string) error {
	if len(label) > machine.MaxLabel {
		return fmt.Errorf("%w: label of %d bytes, the limit is %d", ErrTooLarge, len(label), machine.MaxLabel)
	}
	if !utf8.ValidString(label) || strings.IndexByte(label, 0) >= 0 {
		return fmt.Errorf("%w label: want UTF-8 without NUL, got %q", ErrInvalid, label)
	}
	return nil
}

// FencedLock returns a new handle to the lock of that name, 1 to 512 bytes of UTF-8
// without NUL. It does not block; an invalid name or option is reported when the
// handle is used, as ErrInvalid or ErrTooLarge.
//
// The handle acquires under the node's own session, which has the TTL
// Config.SessionTTL and no lock-delay.
func (g *Group) FencedLock(name string, opts ...LockOption) *FencedLock {
	return newLock(g, nil, wire.Space_LOCK, name, opts)
}

// FencedLock returns a new handle to the lock of that name, like [Group.FencedLock],
// which acquires under this session, with its lock-delay. Once the session has
// ended, Lock fails with ErrSessionExpired, after ErrLockOwnershipLost for as long as
// Unlocks are owed.
func (s *Session) FencedLock(name string, opts ...LockOption) *FencedLock {
	return newLock(s.group, s.lease, wire.Space_LOCK, name, opts)
}

func newLock(g *Group, lease *client.Lease, space wire.Space, name string, opts []LockOption) *FencedLock {
	o := lockOptions{config: client.LockConfig{Lease: lease, Space: space, Name: name}, err: validName(name)}
	o.apply(opts)
	l := &FencedLock{group: g, name: name, bad: o.err}
	l.handle.Init(g.client, o.config)
	return l
}

// Lock acquires the lock and returns its fence. It blocks until the lock is granted,
// ctx is done, or the session ends. Waiters are served in FIFO order across the
// group. The handle of a node's own session that holds nothing waits on under the
// node's next session, behind the other waiters.
//
// A non-nil error means that this call holds nothing: a place in the queue is
// withdrawn in the background, and a grant that won that race is released. Errors:
// ctx's, with ErrUnavailable if no quorum was reachable; ErrSessionExpired for a
// handle of a session that has ended; ErrLockOwnershipLost if the handle held the
// lock and lost it, even during the call, until each Unlock owed was called;
// ErrAcquireLimitReached; ErrDeadlock with [RefuseDeadlock]; ErrBusy with too many waiters or calls under way;
// ErrTooLarge and ErrInvalid for the name or an option; ErrClosed.
//
// A hold is a lease. Its holder can be paused at any moment, even right after Lock
// returned, and act when another owner has the lock already. Lost and Fence report
// that early, but only the resource can refuse: send it the fence.
func (l *FencedLock) Lock(ctx context.Context) (Fence, error) {
	began, span := l.group.calls.begin(), l.span(ctx, CallLock, "lock")
	f, err := l.acquire(ctx, true, nil, span)
	err = fault("lock", l.name, err)
	span.end(err)
	l.group.calls.returned(CallLock, began, err)
	return f, err
}

// TryLock is Lock without waiting for other owners. If the lock is not available the
// error wraps ErrLocked, or ErrLockDelay if its last holder's lock-delay has not
// passed. It blocks until the group has decided.
func (l *FencedLock) TryLock(ctx context.Context) (Fence, error) {
	began, span := l.group.calls.begin(), l.span(ctx, CallTryLock, "try lock")
	f, err := l.acquire(ctx, false, nil, span)
	err = fault("try lock", l.name, err)
	span.end(err)
	l.group.calls.returned(CallTryLock, began, err)
	return f, err
}

// acquire acquires; value is an election's.
func (l *FencedLock) acquire(ctx context.Context, wait bool, value []byte, s *span) (Fence, error) {
	if l.bad != nil {
		return 0, l.bad
	}
	f, err := l.handle.Acquire(ctx, wait, value, s.trace())
	if err != nil {
		return 0, l.explain(err)
	}
	s.granted(Fence(f), l)
	return Fence(f), nil
}

// giveUp implements grant.
func (l *FencedLock) giveUp() { _ = l.handle.Release(ended(), nil) }

// ended is a context with which a release does not wait for the group.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// explain adds to the error of an acquisition that this very handle was in the way, or how
// often it holds the lock.
func (l *FencedLock) explain(err error) error {
	var f *client.Fault
	switch {
	case !errors.As(err, &f):
		return err
	case f.Kind == client.Refused && f.Reply.GetCode() == wire.Code_LIMIT_REACHED:
		return fmt.Errorf("%w: this handle holds the lock %d times: call Unlock first", ErrAcquireLimitReached, l.handle.Holds())
	case !l.handle.IsOwner(f.Reply):
		return err
	}
	const own = "held by this handle: use Reentrant to lock it again"
	if f.Kind == client.Refused {
		return fmt.Errorf("%w: %s", ErrLocked, own)
	}
	return fmt.Errorf("%w: %s", ownCause(f.Cause), own)
}

// Unlock releases one hold. With the last one the lock is free, and granted to the
// waiter at the head of the queue. It blocks until the group has agreed or ctx is
// done; with [Linger] it does not block.
//
// The hold counts as released from the call on, whatever Unlock returns. If ctx is
// done, even before the call, the release is still submitted and pursued in the
// background until it is applied or the session has ended, and the error wraps ctx's
// and ErrUnknown. ErrNotHeld: the handle holds nothing; no effect.
// ErrLockOwnershipLost: the hold was lost before.
func (l *FencedLock) Unlock(ctx context.Context) error {
	began, span := l.group.calls.begin(), l.span(ctx, CallUnlock, "unlock")
	err := fault("unlock", l.name, l.unlock(ctx, span))
	span.end(err)
	l.group.calls.returned(CallUnlock, began, err)
	return err
}

func (l *FencedLock) unlock(ctx context.Context, s *span) error {
	if l.bad != nil {
		return l.bad
	}
	return l.handle.Release(ctx, s.trace())
}

// Fence returns the fence of the current hold. It does not block, needs no network and
// reads the clock itself: a holder that was paused for longer than its session allows
// is refused here, with ErrLockOwnershipLost, even before Lost is closed. ErrNotHeld:
// the handle holds nothing.
func (l *FencedLock) Fence() (Fence, error) {
	f, err := l.current()
	return f, fault("fence", l.name, err)
}

func (l *FencedLock) current() (Fence, error) {
	if l.bad != nil {
		return 0, l.bad
	}
	f, err := l.handle.Fence()
	return Fence(f), err
}

// Holds returns the number of holds of this handle that have not been released, lost
// ones included. It does not block and does not ask the group.
func (l *FencedLock) Holds() int { return l.handle.Holds() }

// Lost returns a channel that is closed when the current hold is lost: at the session's
// deadline, by this process's own clock and before the group may grant the lock to
// another owner; or when this process learns that the group has ended the session.
// [Session] says what the deadline is. Unlock does not close the channel. It is nil when
// nothing is held.
//
// No clock can announce what ends a session at once: [Group.CloseSession] on any member,
// another start of this member, [Node.Leave], [Check.Fail] and [Check.Deregister] of a
// check of the session, and [Group.AttachSession] elsewhere of a session with NoTTL. A
// process that is partitioned at that moment learns of it when it reaches the group
// again, or at the deadline: the lock-delay and fences are for that.
//
// After the machine was suspended, Lost is closed by the node's next heartbeat. Fence
// reads the clock and needs none; within a millisecond after the machine has resumed, it
// may still return the fence of a lost hold, like a holder that paused after it.
func (l *FencedLock) Lost() <-chan struct{} { return l.handle.Lost() }

// Do runs f while it holds the lock, with the fence of the hold. The context passed to f
// carries the fence as well ([FenceFromContext]). It is done when ctx is, and, with the
// cause ErrLockOwnershipLost or [ErrHoldExpired], when the lock is lost; f should then stop and must not touch
// what the lock protects.
//
// If the lock was not acquired, Do returns the error of Lock. Otherwise it returns f's error
// as it is. If the lock was lost meanwhile, that is joined with ErrLockOwnershipLost, and if
// the release failed otherwise, with the error of Unlock. Do waits for the release even if ctx
// is done, at most until the session's deadline if it has one. With [Linger] there is no
// release to wait for.
func (l *FencedLock) Do(ctx context.Context, f func(ctx context.Context, fence Fence) error) error {
	fence, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return holding(ctx, fence, l.handle.Loss(), l.Unlock, f)
}

// LockInfo describes a lock. For a lock that is free and has no waiters, only Name is
// set.
type LockInfo struct {
	Name    string
	Held    bool
	Session SessionID // of the holder, like Node, Label, Holds and Fence; zero if not held
	Node    MemberID
	// SessionName is the holder's: of a client, which has no other name, that of its own session
	// is its process. Empty if the member that was asked runs a build that does not state it.
	SessionName string
	Client      bool   // Node is a client; see [Dial]
	Label       string // see [WithLabel]
	Holds       int
	Fence       Fence
	// Since is how long it has been held, as LockOwner.Since; 0 if not held.
	Since time.Duration
	// Lingering says that the node keeps the lock for a while and grants it by itself ([Linger]);
	// only the node knows whether a handle holds it at the moment. Fence is the first of those
	// that it gives out.
	Lingering bool
	Waiters   int
	Sets      int           // of the Waiters, those that are a LockSet
	Reserved  bool          // for a LockSet that waits: Explain lists it. A later request does not come before it
	Delay     time.Duration // lock-delay left; with Held, of others that have shared the lock
	EndsIn    time.Duration // until the hold ends by [MaxHold] at the latest; 0: it does not
	Set       int           // names of the LockSet that the holder has as a whole; 0: it has the lock alone
	SetWith   []string      // other names of that LockSet: the first ones, 3 at most
	// Shared is by how many holders the lock is held in shared mode ([RWLock]), with those of sessions that
	// have just ended until the group has released them; 0: it is not held so. Session and what goes
	// with it are then those of the first holder, and Fence is that of all.
	Shared  int
	Holders []ShareInfo // with Shared: the first ones, 1,024 at most
}

// Info describes the lock, which may be held by any node. It is linearizable and
// blocks until a quorum has confirmed that this node is up to date. The lock may have
// changed by the time that Info returns. Errors: ErrUnavailable with ctx's; ErrBusy
// with too many reads under way; ErrTooLarge and ErrInvalid for the name; ErrClosed.
func (l *FencedLock) Info(ctx context.Context) (LockInfo, error) {
	return infoOf(ctx, l.group, l.name, l.bad)
}

// infoOf describes a lock; bad is what is wrong with its name, if anything.
func infoOf(ctx context.Context, g *Group, name string, bad error) (LockInfo, error) {
	if bad != nil {
		return LockInfo{}, fault("info", name, bad)
	}
	v, err := ask[*machine.LockView](ctx, g, machine.LockQuery{Space: wire.Space_LOCK, Name: name})
	switch {
	case err != nil:
		return LockInfo{}, fault("info", name, err)
	case v == nil:
		return LockInfo{Name: name}, nil
	}
	return lockInfo(*v), nil
}

func lockInfo(v machine.LockView) LockInfo {
	info := LockInfo{
		Name: v.Name, Held: v.Held, Session: SessionID(v.Session), Node: MemberID(v.Member), Label: v.Label,
		SessionName: v.SessionName, Client: v.Client, Holds: int(v.Holds), Fence: Fence(v.Fence), Lingering: v.Lingering, Waiters: v.Waiters, Delay: duration(v.Delay),
		Since: duration(v.Since), Shared: v.Shared, EndsIn: duration(v.EndsIn), Set: v.Set,
		SetWith: v.With, Sets: v.Sets, Reserved: v.Reserved,
	}
	for _, h := range v.Holders {
		info.Holders = append(info.Holders, ShareInfo{
			Session: SessionID(h.Session), Node: MemberID(h.Member), SessionName: h.Name, Client: h.Client, Label: h.Label,
			Holds: int(h.Holds), Since: duration(h.Since), Lingering: h.Lingering, EndsIn: duration(h.EndsIn), Set: h.Set,
		})
	}
	return info
}

// Locks lists the locks of the group whose names begin with prefix and that are held,
// waited for or in a lock-delay, by name. It reads pages, each linearizable and each
// blocking as Info does; locks that change between two pages may be missing or out of
// date. The sequence ends after the first error, whose causes are those of Info.
func (g *Group) Locks(ctx context.Context, prefix string, opts ...ListOption[string]) iter.Seq2[LockInfo, error] {
	l := listingOf(opts)
	if err := validPrefixes(prefix, l.after); err != nil {
		return refused[LockInfo]("list locks", prefix, err)
	}
	return pages(ctx, g, "list locks", prefix, l, func(after string) machine.Query {
		return machine.LocksQuery{Space: wire.Space_LOCK, Prefix: prefix, After: after, Limit: pageSize}
	}, func(v machine.LockView) string { return v.Name }, lockInfo)
}
