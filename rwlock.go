package conclave

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/wire"
)

// RWLock is a handle to a lock of the group that takes it exclusively or shared, as a
// sync.RWMutex does. The lock is the one that a [FencedLock] of the same name takes
// exclusively: the two kinds of handle exclude each other, and wait in one queue.
//
// The queue is served from its head: an exclusive request when there is no holder, a shared
// one when there is no exclusive holder, and with it those that follow until the next
// exclusive one. So a shared request waits behind an exclusive one that came before, and
// readers do not starve writers.
//
// By default a handle is for any number of goroutines: each RLock is a hold of its own, and
// each RUnlock releases one of them, whichever. A handle made with [Reentrant] is one owner in both
// modes, as a FencedLock is. Its further RLock passes exclusive requests that wait, since they
// wait for the handle itself. A call that waits when another one of it is granted the lock is
// decided as a later call is.
//
// There is no upgrade of a shared hold to an exclusive one, since two holders that upgrade
// would wait for each other: RUnlock first, Lock, and look again at what was read. The other way there is
// [RWLock.Downgrade].
//
// The fence of exclusive holds is as with a FencedLock. All that hold the lock shared at the same time
// have one fence: a new one if there was no holder before, and else that of those that hold it
// already. So it is larger than that of each exclusive hold before it, smaller than that of each one after, and
// a resource that checks fences serves all readers that hold the lock together.
//
// A shared hold that is lost ends alone. Its session's lock-delay keeps exclusive requests waiting,
// and no shared ones. An idle handle costs nothing and need not be closed. All methods are
// safe for concurrent use.
type RWLock struct {
	group  *Group
	name   string
	bad    error // what is wrong with the name or an option
	handle client.RWLock
}

// RWLock returns a new handle to the lock of that name, in both modes. The name, the options and the session are as
// with [Group.FencedLock], except that with [Linger] the lock lingers in shared mode only. While it does, a
// TryLock of this node too is refused the first time, and recalls it.
//
// Shared mode and Downgrade fail with ErrUpgradeRequired while a member of the group runs a
// build that does not know them.
func (g *Group) RWLock(name string, opts ...LockOption) *RWLock {
	return newRWLock(g, nil, name, opts)
}

// RWLock returns a new handle to the lock of that name, like [Group.RWLock], which acquires under this
// session, as one of [Session.FencedLock] does.
func (s *Session) RWLock(name string, opts ...LockOption) *RWLock {
	return newRWLock(s.group, s.lease, name, opts)
}

func newRWLock(g *Group, lease *client.Lease, name string, opts []LockOption) *RWLock {
	o := lockOptions{config: client.LockConfig{Lease: lease, Space: wire.Space_LOCK, Name: name}, err: validName(name)}
	o.apply(opts)
	l := &RWLock{group: g, name: name, bad: o.err}
	l.handle.Init(g.client, o.config)
	return l
}

// Lock acquires the lock exclusively and returns its fence, as [FencedLock.Lock] does, with the
// same errors; ErrInvalid also if the handle was made with Reentrant and holds the lock shared. Without that
// option Lock waits for the shared holds of its own handle as for others.
func (l *RWLock) Lock(ctx context.Context) (Fence, error) {
	return l.acquire(ctx, CallLock, "lock", l.lock, true)
}

// TryLock is Lock without waiting for other owners, as [FencedLock.TryLock] is.
func (l *RWLock) TryLock(ctx context.Context) (Fence, error) {
	return l.acquire(ctx, CallTryLock, "try lock", l.lock, false)
}

// Unlock releases one exclusive hold, as [FencedLock.Unlock] does.
func (l *RWLock) Unlock(ctx context.Context) error {
	return l.release(ctx, CallUnlock, "unlock", l.handle.Release)
}

// RLock acquires the lock shared and returns its fence. It blocks until the lock is granted, ctx
// is done, or the session ends, and has the errors of [FencedLock.Lock]; ErrLockOwnershipLost if the handle
// lost a hold in either mode, until each Unlock and RUnlock owed was called; ErrBusy also with 16,384
// shared holders; ErrUpgradeRequired; ErrInvalid also if the handle was made with Reentrant and holds the
// lock exclusively: Downgrade is for that. Without that option RLock waits for the exclusive
// hold of its own handle as for another one.
//
// A non-nil error means that this call holds nothing.
func (l *RWLock) RLock(ctx context.Context) (Fence, error) {
	return l.acquire(ctx, CallRLock, "rlock", l.rlock, true)
}

// TryRLock is RLock without waiting for other owners. ErrLocked also if the lock is held shared
// and an exclusive request waits for it, which the error names then; ErrLockDelay if the
// lock-delay of an exclusive holder has not passed.
func (l *RWLock) TryRLock(ctx context.Context) (Fence, error) {
	return l.acquire(ctx, CallTryRLock, "try rlock", l.rlock, false)
}

// RUnlock releases one shared hold. It blocks until the group has agreed or ctx is done, with the
// outcomes and errors of [FencedLock.Unlock]; with [Linger] it does not block.
func (l *RWLock) RUnlock(ctx context.Context) error {
	return l.release(ctx, CallRUnlock, "runlock", l.handle.ReleaseShared)
}

// Downgrade turns the handle's exclusive hold into a shared one and returns its fence, which is a new
// one. No other owner holds the lock exclusively in between, even if one waits for that, and the shared
// requests at the head of the queue are granted with it. With Reentrant all holds of the
// handle become shared. Each needs an RUnlock afterwards instead of an Unlock.
//
// It blocks until the group has decided. ErrNotHeld: the handle does not hold the lock exclusively;
// ErrLockOwnershipLost; ErrUpgradeRequired; ErrBusy; ErrClosed; and ctx's, with ErrUnavailable if nothing was
// sent, or else with ErrUnknown. Then the outcome is awaited in the background, and Unlock and
// RUnlock both release the hold, whichever it is.
func (l *RWLock) Downgrade(ctx context.Context) (Fence, error) {
	return l.acquire(ctx, CallDowngrade, "downgrade", l.downgrade, false)
}

func (l *RWLock) lock(ctx context.Context, wait bool, s *span) (uint64, grant, error) {
	f, err := l.handle.Acquire(ctx, wait, s.trace())
	return f, exclusive{l}, err
}

func (l *RWLock) rlock(ctx context.Context, wait bool, s *span) (uint64, grant, error) {
	f, err := l.handle.AcquireShared(ctx, wait, s.trace())
	return f, shared{l}, err
}

func (l *RWLock) downgrade(ctx context.Context, _ bool, s *span) (uint64, grant, error) {
	f, err := l.handle.Downgrade(ctx, s.trace())
	return f, nil, err // the caller had it before, and owes its release also if the tracer ends the goroutine
}

// exclusive is a grant of the lock.
type exclusive struct{ lock *RWLock }

func (e exclusive) giveUp() { _ = e.lock.handle.Release(ended(), nil) }

// shared is a grant of the lock in shared mode.
type shared struct{ lock *RWLock }

func (s shared) giveUp() { _ = s.lock.handle.ReleaseShared(ended(), nil) }

// acquire makes a call that is granted the lock in one of its modes.
func (l *RWLock) acquire(ctx context.Context, kind CallKind, op string, call func(context.Context, bool, *span) (uint64, grant, error), wait bool) (Fence, error) {
	began, span := l.group.calls.begin(), l.span(ctx, kind, op)
	var (
		f   uint64
		got grant
	)
	err := l.bad
	if err == nil {
		f, got, err = call(ctx, wait, span)
	}
	if err == nil {
		span.granted(Fence(f), got)
	} else {
		err = fault(op, l.name, l.explain(err))
	}
	span.end(err)
	l.group.calls.returned(kind, began, err)
	return Fence(f), err
}

func (l *RWLock) release(ctx context.Context, kind CallKind, op string, call func(context.Context, *client.Trace) error) error {
	began, span := l.group.calls.begin(), l.span(ctx, kind, op)
	err := l.bad
	if err == nil {
		err = call(ctx, span.trace())
	}
	err = fault(op, l.name, err)
	span.end(err)
	l.group.calls.returned(kind, began, err)
	return err
}

func (l *RWLock) span(ctx context.Context, kind CallKind, op string) *span {
	t := &l.group.tracing
	if !t.on() {
		return nil
	}
	return t.begin(ctx, Operation{Kind: kind, Op: op, Name: l.name, Fence: Fence(l.handle.GrantedFence())})
}

// explain is [FencedLock.explain] for both modes.
func (l *RWLock) explain(err error) error {
	var f *client.Fault
	switch {
	case !errors.As(err, &f):
		return err
	case f.Kind == client.Refused && f.Reply.GetCode() == wire.Code_LIMIT_REACHED:
		return fmt.Errorf("%w: this handle holds the lock %d times: release it first", ErrAcquireLimitReached, l.handle.Holds())
	case !l.handle.IsOwner(f.Reply):
		return err
	}
	held := "held exclusively by this handle: use Reentrant to lock it again, or Downgrade"
	switch holder := f.Reply.GetHolder(); {
	case holder.GetWaiting():
		held = "another call of this handle waits for it exclusively"
	case holder.GetShared():
		held = "held shared by this handle: there is no upgrade, so call RUnlock first"
	}
	if f.Kind == client.Refused {
		return fmt.Errorf("%w: %s", ErrLocked, held)
	}
	return fmt.Errorf("%w: %s", ownCause(f.Cause), held)
}

// Fence returns the fence of what the handle holds, exclusively or shared, as [FencedLock.Fence] does.
func (l *RWLock) Fence() (Fence, error) {
	if l.bad != nil {
		return 0, fault("fence", l.name, l.bad)
	}
	f, err := l.handle.Fence()
	return Fence(f), fault("fence", l.name, err)
}

// Holds returns the number of holds of this handle, exclusive or shared, that have not been released, lost ones
// included. It does not block and does not ask the group.
func (l *RWLock) Holds() int { return l.handle.Holds() }

// Lost returns a channel that is closed when what the handle holds is lost, as that of [FencedLock.Lost] is. While
// it holds the lock shared, that is when the session ends, even if it was released before, or at the end that [MaxHold]
// describes. It is nil when nothing is held.
func (l *RWLock) Lost() <-chan struct{} { return l.handle.Lost() }

// Do runs f while it holds the lock exclusively, as [FencedLock.Do] does. If f calls Downgrade, Do releases
// the shared hold.
func (l *RWLock) Do(ctx context.Context, f func(ctx context.Context, fence Fence) error) error {
	fence, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return holding(ctx, fence, l.handle.Loss(), l.unlockEither, f)
}

// RDo runs f while it holds the lock shared, and is otherwise like [FencedLock.Do].
func (l *RWLock) RDo(ctx context.Context, f func(ctx context.Context, fence Fence) error) error {
	fence, err := l.RLock(ctx)
	if err != nil {
		return err
	}
	return holding(ctx, fence, l.handle.Loss(), l.RUnlock, f)
}

// unlockEither releases an exclusive hold, or what Downgrade has made of it.
func (l *RWLock) unlockEither(ctx context.Context) error {
	err := l.Unlock(ctx)
	if errors.Is(err, ErrNotHeld) {
		return l.RUnlock(ctx)
	}
	return err
}

// ShareInfo describes a holder of a lock in shared mode. The fields are as in [LockInfo].
type ShareInfo struct {
	Session     SessionID
	Node        MemberID
	SessionName string
	Client      bool
	Label       string
	Holds       int
	Since       time.Duration
	Lingering   bool
	EndsIn      time.Duration
	Set         int
}

// Info describes the lock, as [FencedLock.Info] does.
func (l *RWLock) Info(ctx context.Context) (LockInfo, error) {
	return infoOf(ctx, l.group, l.name, l.bad)
}

// Locker returns the lock as a sync.Locker that takes it exclusively, as [FencedLock.Locker] does.
func (l *RWLock) Locker(ctx context.Context) sync.Locker { return locker{l.Lock, l.Unlock, ctx} }

// RLocker returns the lock as a sync.Locker that takes it shared, and is otherwise as [FencedLock.Locker] returns it.
func (l *RWLock) RLocker(ctx context.Context) sync.Locker { return locker{l.RLock, l.RUnlock, ctx} }
