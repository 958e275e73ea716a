package conclave

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/wire"
)

// LockSet is a handle to several locks of the group that it takes as a whole: all of them by one entry of the log, or
// none. Its names are those of [FencedLock] and [RWLock]: all kinds of handle exclude each other by name. The names
// that [Shared] adds are taken shared, as [RWLock.RLock] does, and the others exclusively.
//
// A set that waits holds nothing, so sets alone cannot deadlock, in whatever order their names are. It is granted
// when all its names are free for it: not held or in a lock-delay, and not requested before by another owner that
// waits in the queue of the name. Meanwhile later requests for some of its names may be granted. After that has happened four
// times the names are reserved: no later request is granted one of them before the set, so each set gets its turn. With [RefuseDeadlock]
// they are not where that would close a cycle of sessions that wait for each other, but at the first later grant at which it does not.
//
// A single lock can wait for a reserved name as for a held one. So a goroutine that holds a single lock and
// locks a second one can deadlock with a set that waits for the first one and has the second one reserved: lock
// both as a set too, or use [RefuseDeadlock]. Nested sets can deadlock as nested locks do.
//
// The set has one fence, larger than all before. It is that of each exclusive name. A name that others hold shared
// already has theirs, which is smaller: [LockSet.FenceOf] returns the right one for each name.
//
// A handle is one owner. Goroutines that share a handle exclude one another, also if all its names are shared. It is
// released and lost as a whole. An idle handle costs nothing and need not be closed. All methods are safe for concurrent use.
type LockSet struct {
	group  *Group
	names  []string // the exclusive ones, and then the shared ones
	shared int      // how many of them
	name   string   // for people
	bad    error    // what is wrong with a name or an option
	handle client.Set
}

// Shared adds names to a [LockSet] that it takes shared. Other handles with this option return ErrInvalid when they are
// used: [RWLock] is for one lock.
func Shared(names ...string) LockOption {
	names = slices.Clone(names)
	return lockOption(func(o *lockOptions) { o.shared, o.isShared = append(o.shared, names...), true })
}

// LockSet returns a new handle to the locks of these names, and those that [Shared] adds: 1 to 128 together, none twice,
// each 1 to 512 bytes of UTF-8 without NUL. It does not block; invalid names or options are reported when the handle
// is used, as ErrInvalid or ErrTooLarge. [MaxHold], [RefuseDeadlock] and [WithLabel] are as with [Group.FencedLock];
// [Reentrant] and [Linger] exclude a set.
//
// The handle acquires under the node's own session, which has the TTL Config.SessionTTL and no lock-delay. While a member of the
// group runs a build that does not know sets, Lock and TryLock fail with ErrUpgradeRequired.
func (g *Group) LockSet(names []string, opts ...LockOption) *LockSet {
	return newLockSet(g, nil, names, opts)
}

// LockSet returns a new handle to the locks of these names, like [Group.LockSet], which acquires under this session, as one
// of [Session.FencedLock] does.
func (s *Session) LockSet(names []string, opts ...LockOption) *LockSet {
	return newLockSet(s.group, s.lease, names, opts)
}

func newLockSet(g *Group, lease *client.Lease, names []string, opts []LockOption) *LockSet {
	o := lockOptions{config: client.LockConfig{Lease: lease, Space: wire.Space_LOCK}, set: true}
	o.apply(opts)
	l := &LockSet{group: g, names: slices.Concat(names, o.shared), shared: len(o.shared), bad: o.err}
	if err := validSet(l.names); l.bad == nil {
		l.bad = err
	}
	l.name = setName(l.names)
	o.config.Name = l.name
	l.handle.Init(g.client, client.SetConfig{LockConfig: o.config, Exclusive: l.names[:len(names)], Shared: l.names[len(names):]})
	return l
}

// validSet checks the names of a set.
func validSet(names []string) error {
	switch {
	case len(names) == 0:
		return fmt.Errorf("%w set: it has no names", ErrInvalid)
	case len(names) > wire.MaxSet:
		return fmt.Errorf("%w: set of %d names, the limit is %d", ErrTooLarge, len(names), wire.MaxSet)
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if err := validName(name); err != nil {
			return fmt.Errorf("name %s: %w", quote(name), err)
		}
		if seen[name] {
			return fmt.Errorf("%w set: %s is there twice", ErrInvalid, quote(name))
		}
		seen[name] = true
	}
	return nil
}

// maxSetName is from how many bytes on the name of a set has no further ones.
const maxSetName = 100

// setName is what errors, logs and traces call a set.
func setName(names []string) string {
	length := 0
	for i, name := range names {
		if length += len(name); length > maxSetName && i > 0 {
			return fmt.Sprintf("%s and %d more", strings.Join(names[:i], ", "), len(names)-i)
		}
	}
	return strings.Join(names, ", ")
}

// Lock acquires all names and returns the fence of the set. It blocks until they are granted together, ctx is done, or the
// session ends; until then it holds none of them.
//
// A non-nil error means that this call holds nothing. The errors are those of [FencedLock.Lock] but
// ErrAcquireLimitReached: ctx's, which names the first name in the way; ErrBusy also if one of the queues has no room for the
// set, or one entry of the log would take more than 16,384 names for sets; and ErrUpgradeRequired. A handle that holds its set waits for itself: no handle takes a set twice.
func (s *LockSet) Lock(ctx context.Context) (Fence, error) {
	return s.acquire(ctx, CallLock, "lock", true)
}

// TryLock is Lock without waiting for other owners. If a name is not available the error is a *[TakenError], which
// lists those that are not. It wraps ErrLocked, or ErrLockDelay if nothing but lock-delays is in the way. TryLock blocks
// until the group has decided.
func (s *LockSet) TryLock(ctx context.Context) (Fence, error) {
	return s.acquire(ctx, CallTryLock, "try lock", false)
}

func (s *LockSet) acquire(ctx context.Context, kind CallKind, op string, wait bool) (Fence, error) {
	began, span := s.group.calls.begin(), s.span(ctx, kind, op)
	var f uint64
	err := s.bad
	if err == nil {
		f, err = s.handle.Acquire(ctx, wait, span.trace())
	}
	if err == nil {
		span.granted(Fence(f), s)
	} else {
		err = fault(op, s.name, s.explain(err))
	}
	span.end(err)
	s.group.calls.returned(kind, began, err)
	return Fence(f), err
}

// giveUp implements grant.
func (s *LockSet) giveUp() { _ = s.handle.Release(ended(), nil) }

func (s *LockSet) span(ctx context.Context, kind CallKind, op string) *span {
	t := &s.group.tracing
	if !t.on() {
		return nil
	}
	return t.begin(ctx, Operation{Kind: kind, Op: op, Name: s.name, Fence: Fence(s.handle.GrantedFence())})
}

// Unlock releases all names. It blocks until the group has agreed or ctx is done, with the outcomes and errors of
// [FencedLock.Unlock].
func (s *LockSet) Unlock(ctx context.Context) error {
	began, span := s.group.calls.begin(), s.span(ctx, CallUnlock, "unlock")
	err := s.bad
	if err == nil {
		err = s.handle.Release(ctx, span.trace())
	}
	err = fault("unlock", s.name, err)
	span.end(err)
	s.group.calls.returned(CallUnlock, began, err)
	return err
}

// Fence returns the fence of the set that the handle holds, as [FencedLock.Fence] does. It is right for the exclusive
// names, and for those shared names that no other owner held when the set was granted.
func (s *LockSet) Fence() (Fence, error) {
	if s.bad != nil {
		return 0, fault("fence", s.name, s.bad)
	}
	f, err := s.handle.Fence()
	return Fence(f), fault("fence", s.name, err)
}

// FenceOf returns the fence of one name of the set, and is otherwise as Fence. Of a shared name it is that of all that hold
// it together. ErrInvalid: the set does not have the name.
func (s *LockSet) FenceOf(name string) (Fence, error) {
	if s.bad != nil {
		return 0, fault("fence", s.name, s.bad)
	}
	if !slices.Contains(s.names, name) {
		return 0, fault("fence", name, fmt.Errorf("%w name: it is not in the set", ErrInvalid))
	}
	f, err := s.handle.FenceOf(name)
	return Fence(f), fault("fence", name, err)
}

// Holds returns 1 if the handle holds its set or still owes an Unlock after a loss, and else 0. It does not block and does
// not ask the group.
func (s *LockSet) Holds() int { return s.handle.Holds() }

// Lost returns a channel that is closed when the set is lost, as that of [FencedLock.Lost] is: all names together. It is
// nil when nothing is held.
func (s *LockSet) Lost() <-chan struct{} { return s.handle.Lost() }

// Extend moves the end of the set with [MaxHold], as [FencedLock.Extend] does.
func (s *LockSet) Extend(ctx context.Context, d time.Duration) error {
	return extend(ctx, s.group, s.span(ctx, CallExtend, "extend"), s.name, s.bad, d, s.handle.Extend)
}

// Do runs f while it holds the set, with the fence of the set, and is otherwise like [FencedLock.Do].
func (s *LockSet) Do(ctx context.Context, f func(ctx context.Context, fence Fence) error) error {
	fence, err := s.Lock(ctx)
	if err != nil {
		return err
	}
	return holding(ctx, fence, s.handle.Loss(), s.Unlock, f)
}

// Info describes each name of the set, the shared ones last, as [FencedLock.Info] describes a lock: one after the
// other, so a name may have changed when the last one is read. It stops at the first error.
func (s *LockSet) Info(ctx context.Context) ([]LockInfo, error) {
	if s.bad != nil {
		return nil, fault("info", s.name, s.bad)
	}
	all := make([]LockInfo, 0, len(s.names))
	for _, name := range s.names {
		info, err := infoOf(ctx, s.group, name, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// explain adds to the error of an acquisition which names were in the way.
func (s *LockSet) explain(err error) error {
	var f *client.Fault
	if !errors.As(err, &f) {
		return err
	}
	taken := s.taken(f.Reply)
	switch {
	case f.Kind == client.Refused && len(taken.Names) > 0:
		return taken
	case f.Kind == client.Refused && f.Reply.GetCode() == wire.Code_LOCKED:
		return s.takenByItself()
	case f.Kind == client.Interrupted && len(taken.Names) > 0:
		return fmt.Errorf("%w: queued at position %d, %v", ownCause(f.Cause), f.Reply.GetPosition(), taken.Names[0])
	}
	return err
}
