package conclave

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Semaphore is a handle to a semaphore of the group: a limited number of permits. All
// its users must agree on the limit, for as long as a permit is held or waited for,
// and once Resize has set it until Resize undoes that. The group keeps nothing of a
// semaphore that is not in use and has no limit from Resize; its next user names the
// limit.
//
// A handle is not an owner: each Acquire stands by itself. A handle costs nothing and
// need not be closed. All methods are safe for concurrent use.
type Semaphore struct {
	group *Group
	lease *client.Lease // to acquire under; nil: the node's own
	name  string
	bad   error         // what is wrong with the name or the limit
	limit atomic.Uint32 // that this handle uses; with follows: that a Resize has set, 0: none is known

	resizes chan struct{} // has a token while a call of Resize is under way
	follows bool          // the limit is GroupLimit
	maxHold time.Duration // after which the permits of an acquisition end; 0: not by time
}

// GroupLimit as the limit of a handle is the limit that [Semaphore.Resize] has set, whatever it is: the
// handle reads it at its first use, and follows each later Resize. So a program changes the
// limit at run time without making handles again.
//
// While no Resize has set a limit, each Acquire and TryAcquire takes the limit of those that hold
// permits or wait at that moment, and fails with ErrNoLimit if there are none. After a Resize to 0 the handle
// goes on with the limit that it has read, until it finds the semaphore in use with another one.
const GroupLimit = math.MinInt32

// SemaphoreInfo describes a semaphore. One that is not in use and was never resized
// has the limit of the handle that asks; with [GroupLimit] that of the last Resize that it has read, or 0.
type SemaphoreInfo struct {
	Name      string
	Limit     int
	Available int // negative while more permits are held than a smaller limit allows
	Waiters   int
	// Holders are the first 1,024 Permits by fence; [Semaphore.Holders] lists all.
	Holders []PermitInfo
	// HolderCount is the number of all Permits. As Available, it includes those of sessions
	// that have just ended until the group has released them.
	HolderCount int
	Delay       time.Duration // until a lock-delay frees the next permit
}

// PermitInfo describes one Permit.
type PermitInfo struct {
	Session SessionID
	Node    MemberID
	// SessionName and Client are as in [LockInfo].
	SessionName string
	Client      bool
	Fence       Fence
	Permits     int
	EndsIn      time.Duration // as in [LockInfo]
	slots       string        // the numbers as text, since a PermitInfo can be compared
}

// Slots returns the numbers of the permits, as [Permit.Slots] does.
func (p PermitInfo) Slots() (numbers []int) {
	for text := range strings.FieldsSeq(p.slots) {
		n, _ := strconv.Atoi(text) // that permitInfo has written
		numbers = append(numbers, n)
	}
	return numbers
}

// Semaphore returns a new handle to the semaphore of that name, 1 to 512 bytes of
// UTF-8 without NUL, with a limit from 1 to 2,147,483,647, or [GroupLimit]. It does not
// block; an invalid name or limit is reported when the handle is used, as ErrInvalid or
// ErrTooLarge.
//
// The handle acquires under the node's own session, which has the TTL
// Config.SessionTTL and no lock-delay.
func (g *Group) Semaphore(name string, limit int) *Semaphore {
	return newSemaphore(g, nil, name, limit)
}

// Semaphore returns a new handle to the semaphore of that name, like
// [Group.Semaphore], which acquires under this session. The permits of a session that
// was invalidated are released when its lock-delay has passed. Once the session has
// ended, Acquire fails with ErrSessionExpired.
func (s *Session) Semaphore(name string, limit int) *Semaphore {
	return newSemaphore(s.group, s.lease, name, limit)
}

func newSemaphore(g *Group, lease *client.Lease, name string, limit int) *Semaphore {
	s := &Semaphore{group: g, lease: lease, name: name, bad: validName(name), follows: limit == GroupLimit, resizes: make(chan struct{}, 1)}
	if s.bad == nil && !s.follows {
		s.bad = validLimit(limit)
	}
	if s.bad == nil && !s.follows {
		s.limit.Store(uint32(limit))
	}
	return s
}

func validLimit(limit int) error {
	if limit < 1 || limit > machine.MaxPermits {
		return fmt.Errorf("%w limit: want 1 to %d, got %d", ErrInvalid, machine.MaxPermits, limit)
	}
	return nil
}

// Acquire acquires n permits at once, as one Permit. It blocks until they are granted,
// ctx is done, or the session ends. Waiters are served in FIFO order across the group:
// a request for many permits is not overtaken by one for few, even if enough permits
// for that one are free. A request under the node's own session waits on under the
// node's next session, behind the other waiters.
//
// A non-nil error means that this call holds nothing: a place in the queue is
// withdrawn in the background, and a grant that won that race is released. Errors:
// ctx's, with ErrUnavailable if no quorum was reachable; ErrLimitMismatch, or ErrNoLimit with GroupLimit;
// ErrSessionExpired for a handle of a session that has ended; ErrBusy with too many
// waiters or calls under way; ErrTooLarge for more permits than the limit; ErrInvalid
// for fewer than one, the name or the limit; ErrClosed.
//
// Under a session of [Group.AttachSession] it claims what the earlier process left of as many permits, also if
// a Resize has left fewer.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Permit, error) {
	began, span := s.group.calls.begin(), s.span(ctx, CallAcquire, "acquire", n)
	p, err := s.acquire(ctx, n, true, span)
	err = fault("acquire", s.name, err)
	span.end(err)
	s.group.calls.returned(CallAcquire, began, err)
	return p, err
}

// TryAcquire is Acquire without waiting for other users. If the permits are not
// available the error wraps ErrLocked, or ErrLockDelay if only lock-delays hold them
// back. It blocks until the group has decided.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Permit, error) {
	began, span := s.group.calls.begin(), s.span(ctx, CallTryAcquire, "try acquire", n)
	p, err := s.acquire(ctx, n, false, span)
	err = fault("try acquire", s.name, err)
	span.end(err)
	s.group.calls.returned(CallTryAcquire, began, err)
	return p, err
}

func (s *Semaphore) span(ctx context.Context, kind CallKind, op string, n int) *span {
	return s.group.tracing.begin(ctx, Operation{Kind: kind, Op: op, Name: s.name, Permits: n})
}

func (s *Semaphore) acquire(ctx context.Context, n int, wait bool, span *span) (*Permit, error) {
	switch {
	case s.bad != nil:
		return nil, s.bad
	case n < 1:
		return nil, fmt.Errorf("%w number of permits: want at least 1, got %d", ErrInvalid, n)
	case s.group.readOnly: // and not only once the limit has been read
		return nil, errReadOnly
	}
	limit := s.limit.Load()
	for {
		if s.follows && uint64(n) > uint64(limit) { // not known yet, or larger by now
			var err error
			if limit, err = s.groupLimit(ctx); err != nil {
				return nil, err
			}
		}
		if uint64(n) > uint64(limit) && !(n <= machine.MaxPermits && s.lease.MayClaimMore()) {
			return nil, fmt.Errorf("%w: %d permits of %d: ask for less, or call Resize", ErrTooLarge, n, limit)
		}
		p, err := s.request(ctx, n, limit, wait, span)
		var f *client.Fault
		if !s.follows || !errors.As(err, &f) || f.Kind != client.Refused || f.Reply.GetCode() != wire.Code_LIMIT_MISMATCH {
			return p, err
		}
		limit = 0 // there is another one since then
	}
}

// groupLimit reads the limit of the group. The handle remembers one that Resize has set: that of other users lasts only
// as long as they use the semaphore, so it is valid for the present call.
func (s *Semaphore) groupLimit(ctx context.Context) (uint32, error) {
	v, err := ask[*machine.SemaphoreView](ctx, s.group, machine.SemaphoreQuery{Name: s.name})
	switch {
	case err != nil:
		return 0, err
	case v == nil: // there was no Resize, or it was undone
		if limit := s.limit.Load(); limit != 0 {
			return limit, nil
		}
		return 0, ErrNoLimit
	case v.Resized:
		s.limit.Store(v.Limit)
	case v.Limit != s.limit.Load():
		s.limit.Store(0)
	}
	return v.Limit, nil
}

func (s *Semaphore) request(ctx context.Context, n int, limit uint32, wait bool, span *span) (*Permit, error) {
	p, err := s.group.client.Acquire(ctx, client.PermitRequest{
		Lease: s.lease, Name: s.name, Limit: limit, Permits: uint32(n), Wait: wait, Trace: span.trace(), MaxHold: s.maxHold,
	})
	var f *client.Fault
	switch {
	case err == nil:
		permit := &Permit{group: s.group, name: s.name, permit: p}
		span.granted(Fence(p.GrantedFence()), permit)
		return permit, nil
	case errors.As(err, &f) && f.Kind == client.Refused && f.Reply.GetCode() == wire.Code_LOCKED:
		err = fmt.Errorf("%w: not enough permits are free", ErrLocked)
	}
	return nil, err
}

// Do runs f while it holds n permits, with the fence of the [Permit]. The context passed to f
// carries the fence as well ([FenceFromContext]). It is done when ctx is, and, with the cause
// ErrLockOwnershipLost or [ErrHoldExpired], when the permits are lost; f should then stop.
//
// If the permits were not acquired, Do returns the error of Acquire. Otherwise it returns f's
// error as it is. If the permits were lost meanwhile, that is joined with ErrLockOwnershipLost,
// and if the release failed otherwise, with the error of Release. Do waits for the release even
// if ctx is done, at most until the session's deadline if it has one.
func (s *Semaphore) Do(ctx context.Context, n int, f func(ctx context.Context, fence Fence) error) error {
	p, err := s.Acquire(ctx, n)
	if err != nil {
		return err
	}
	return holding(ctx, Fence(p.permit.GrantedFence()), p.permit.Loss(), p.Release, f)
}

// Resize changes the limit for all users, and for this handle, whatever it was. Other
// handles with a limit must be made again, with the new one; until then they fail with
// ErrLimitMismatch. Those with [GroupLimit] follow. Permits that are held stay held: after shrinking, none is granted
// until the sum fits again, and waiters for more than the new limit get
// ErrLimitMismatch. The group keeps the limit even while the semaphore is not in use,
// for at most 65,536 semaphores.
//
// A limit of 0 undoes earlier calls: the group keeps the present limit only until the
// semaphore is next not in use, at once if it is not, and the next user names the limit.
// It changes no handle. Calls on one handle wait for each other.
//
// It blocks until the group has agreed. Errors: ErrInvalid and ErrTooLarge for the
// name or the limit, ErrBusy, ErrClosed, and ctx's with ErrUnavailable or ErrUnknown.
func (s *Semaphore) Resize(ctx context.Context, limit int) error {
	err := s.bad
	if err == nil && limit != 0 {
		err = validLimit(limit)
	}
	if err == nil {
		err = s.resize(ctx, uint32(limit))
	}
	return fault("resize", s.name, err)
}

// resize has the group change the limit, and the handle use it: in the same order, if there are several calls.
func (s *Semaphore) resize(ctx context.Context, limit uint32) error {
	if err := s.group.client.Turn(ctx, s.resizes); err != nil {
		return err
	}
	defer func() { <-s.resizes }()
	_, err := s.group.client.Exec(ctx, &wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: s.name, Limit: limit}}})
	if err == nil && limit != 0 && !s.follows {
		s.limit.Store(limit)
	}
	return err
}

// Info describes the semaphore and lists its first holders, of any node. It is linearizable
// and blocks until a quorum has confirmed that this node is up to date. The semaphore
// may have changed by the time that Info returns. Its errors are those of
// [FencedLock.Info].
func (s *Semaphore) Info(ctx context.Context) (SemaphoreInfo, error) {
	if s.bad != nil {
		return SemaphoreInfo{}, fault("info", s.name, s.bad)
	}
	limit := int(s.limit.Load())
	v, err := ask[*machine.SemaphoreView](ctx, s.group, machine.SemaphoreQuery{Name: s.name})
	switch {
	case err != nil:
		return SemaphoreInfo{}, fault("info", s.name, err)
	case v == nil:
		return SemaphoreInfo{Name: s.name, Limit: limit, Available: limit}, nil
	}
	return semaphoreInfo(*v), nil
}

// Holders lists the Permits that are held, of any node, by fence from behind the fence after on;
// 0: all. It reads pages, as [Group.Locks] does. Its errors are those of [FencedLock.Info];
// ErrInvalid also if a client asks a member of an earlier version.
func (s *Semaphore) Holders(ctx context.Context, after Fence) iter.Seq2[PermitInfo, error] {
	return func(yield func(PermitInfo, error) bool) {
		q := machine.HoldersQuery{Name: s.name, After: uint64(after), Limit: pageSize}
		for done := false; !done; {
			page, err := machine.HoldersView{}, s.bad
			if err == nil {
				page, err = ask[machine.HoldersView](ctx, s.group, q)
			}
			if err != nil {
				yield(PermitInfo{}, fault("list holders", s.name, err))
				return
			}
			for _, p := range page.Holders {
				if !yield(permitInfo(p), nil) {
					return
				}
			}
			q.After, done = page.Next, page.Done
		}
	}
}

func semaphoreInfo(v machine.SemaphoreView) SemaphoreInfo {
	info := SemaphoreInfo{
		Name: v.Name, Limit: int(v.Limit), Available: int(v.Available), Waiters: v.Waiters, Delay: duration(v.Delay),
		HolderCount: max(v.Total, len(v.Holders)), // a member of an earlier version lists all and states no total
	}
	for _, p := range v.Holders {
		info.Holders = append(info.Holders, permitInfo(p))
	}
	return info
}

func permitInfo(p machine.PermitView) PermitInfo {
	info := PermitInfo{Session: SessionID(p.Session), Node: MemberID(p.Member), SessionName: p.SessionName, Client: p.Client, Fence: Fence(p.Fence), Permits: int(p.Permits), EndsIn: duration(p.EndsIn)}
	info.slots = strings.Trim(fmt.Sprint(p.Slots), "[]")
	return info
}

// Semaphores lists the semaphores of the group whose names begin with prefix and that
// are in use or were resized, by name, each as [Semaphore.Info] describes it. It reads pages,
// as [Group.Locks] does.
func (g *Group) Semaphores(ctx context.Context, prefix string, opts ...ListOption[string]) iter.Seq2[SemaphoreInfo, error] {
	l := listingOf(opts)
	if err := validPrefixes(prefix, l.after); err != nil {
		return refused[SemaphoreInfo]("list semaphores", prefix, err)
	}
	return pages(ctx, g, "list semaphores", prefix, l, func(after string) machine.Query {
		return machine.SemaphoresQuery{Prefix: prefix, After: after, Limit: pageSize}
	}, func(v machine.SemaphoreView) string { return v.Name }, semaphoreInfo)
}
