package conclave

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// FencedLock is a handle to a lock of the group, after Hazelcast's. Two handles
// of one name exclude each other, on one node as on two; a handle is one owner.
//
// By default goroutines that share a handle exclude one another too, like those
// that share a sync.Mutex. A handle made with [Reentrant] may be locked again by
// its owner; give it to one goroutine, or to those that belong together.
//
// A handle costs nothing while it neither holds nor waits, and need not be
// closed. All methods are safe for concurrent use.
type FencedLock struct {
	node      *Node
	session   *Session // what it acquires by; nil: the node's own
	space     wire.Space
	name      string
	bad       error // what is wrong with the name or an option
	handle    uint64
	reentrant bool
	limit     uint32

	mu   sync.Mutex
	hold *hold // guarded by mu; nil when nothing is held or owed
}

// LockOption changes how a lock handle behaves.
type LockOption func(*FencedLock)

// Reentrant lets the handle's owner lock again what it holds, up to limit holds
// at once; 0 is no limit. Every hold has to be given back by an Unlock of its own.
func Reentrant(limit int) LockOption {
	return func(l *FencedLock) {
		l.reentrant = true
		if limit < 0 || limit > math.MaxInt32 {
			l.bad = fmt.Errorf("%w: a reentrant limit of %d; it has to be from 0, which is none, to %d", ErrInvalid, limit, math.MaxInt32)
			return
		}
		l.limit = uint32(limit)
	}
}

// FencedLock returns a new handle to the lock of that name: 1 to 512 bytes of
// UTF-8 without NUL. It does no work and does not block; a bad name or option
// shows when the handle is used, as ErrInvalid or ErrTooLarge.
//
// What it locks is held by the node's own session, with Config.SessionTTL and no
// lock-delay.
func (n *Node) FencedLock(name string, opts ...LockOption) *FencedLock {
	return n.fencedLock(nil, wire.Space_LOCK, name, opts...)
}

// FencedLock returns a new handle to the lock of that name, like
// [Node.FencedLock]. What it locks is held by this session, with its lock-delay.
// Once the session has ended, Lock fails with ErrSessionExpired, after
// ErrLockOwnershipLost for as long as Unlocks are owed.
func (s *Session) FencedLock(name string, opts ...LockOption) *FencedLock {
	return s.node.fencedLock(s, wire.Space_LOCK, name, opts...)
}

func (n *Node) fencedLock(s *Session, space wire.Space, name string, opts ...LockOption) *FencedLock {
	l := &FencedLock{node: n, session: s, space: space, name: name, handle: n.handles.Add(1), bad: validName(name)}
	for _, opt := range opts {
		opt(l)
	}
	return l
}

// Lock acquires the lock and returns its fence. It blocks, first in, first out
// among all that wait in the group, until it is granted, ctx ends, or the
// session ends.
//
// An error means that this call holds nothing: what may have been queued for it
// is withdrawn in the background, and a grant that won that race is given back.
// Errors: ctx's, with ErrUnavailable if no majority could be reached;
// ErrSessionExpired if the session ended while waiting, or before for a handle
// that belongs to one session; ErrLockOwnershipLost if the handle held the lock
// and lost it, until each Unlock owed was called; ErrAcquireLimitReached;
// ErrTooLarge with too many waiters or calls under way; ErrInvalid; ErrClosed.
//
// Holding a lock is a lease. Its holder may be paused at any moment, also right
// after Lock has returned, and act when the lock is already somebody else's.
// Lost and Fence tell early, but only the resource can refuse: give it the fence.
func (l *FencedLock) Lock(ctx context.Context) (Fence, error) {
	f, err := l.acquire(ctx, true, nil)
	return f, fault("lock", l.name, err)
}

// TryLock is Lock without the wait for other holders: if the lock cannot be had
// at once, the error wraps ErrLocked, or ErrLockDelay when its last holder's
// lock-delay has not passed. It blocks for as long as the group takes to decide.
func (l *FencedLock) TryLock(ctx context.Context) (Fence, error) {
	f, err := l.acquire(ctx, false, nil)
	return f, fault("try lock", l.name, err)
}

// acquire acquires; value is an election's.
func (l *FencedLock) acquire(ctx context.Context, wait bool, value []byte) (Fence, error) {
	if l.bad != nil {
		return 0, l.bad
	}
	for {
		if ctx.Err() != nil {
			return 0, ended(ctx)
		}
		session, held, err := l.acquirer(ctx)
		if err != nil {
			return 0, err
		}
		var fence Fence
		if held != nil {
			fence = held.fence
		}
		got, err := newAcquisition(l, session).run(ctx, &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
			Name: l.name, Session: session.id[:], Handle: l.handle,
			Reentrant: l.reentrant, Limit: l.limit, Wait: wait, Fence: uint64(fence),
			Election: l.space == wire.Space_ELECTION, Value: value,
		}}})
		refused := errors.Is(err, errRefusedSession)
		switch {
		case held != nil && (refused || errors.Is(err, ErrLockOwnershipLost)):
			if l.holds(held) {
				return 0, ErrLockOwnershipLost
			}
			continue // it was given back meanwhile, so there was nothing to re-enter
		case refused:
			// It had ended before the request came, so nothing was queued.
			// Handles that hold nothing get another one, if it was the node's.
			session.end(ErrSessionExpired)
			continue
		}
		return got, err
	}
}

// acquirer says by which session to acquire, and which hold is re-entered.
func (l *FencedLock) acquirer(ctx context.Context) (*Session, *hold, error) {
	if err := l.node.usable(); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	h := l.hold
	l.mu.Unlock()
	if h != nil {
		if h.isLost() {
			return nil, nil, ErrLockOwnershipLost
		}
		if l.reentrant {
			return h.session, h, nil
		}
		return h.session, nil, nil
	}
	session, err := l.node.acquireBy(ctx, l.session)
	return session, nil, err
}

// holds reports whether the hold is still the handle's, lost or not.
func (l *FencedLock) holds(h *hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold == h
}

func (l *FencedLock) place() (wire.Space, string, uint64) { return l.space, l.name, l.handle }

func (l *FencedLock) granted(s *Session, f Fence) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.hold; h != nil && h.session == s && h.fence == f {
		h.count++
		return nil
	}
	h := newHold(l.name, s, f)
	if l.hold != nil {
		return ErrLockOwnershipLost // of a former hold, which is still owed
	}
	if !s.keep(h) {
		return fmt.Errorf("waiting: %w", ErrSessionExpired)
	}
	l.hold = h
	return nil
}

// Unlock gives one hold back. With the last one the lock is free, and handed to
// who has waited longest. It blocks until the group has agreed, or ctx ends.
//
// The hold counts as given back from the call on, whatever Unlock returns. When
// ctx ends first, or had ended before, the release still goes out and is pursued
// until it is done or the session has ended, and the error wraps ctx's and
// ErrUnknown. ErrNotHeld: the handle holds nothing, and nothing was done.
// ErrLockOwnershipLost: the hold was lost before.
func (l *FencedLock) Unlock(ctx context.Context) error {
	return fault("unlock", l.name, l.unlock(ctx))
}

func (l *FencedLock) unlock(ctx context.Context) error {
	if l.bad != nil {
		return l.bad
	}
	h, lost := l.giveBack()
	if h == nil {
		return ErrNotHeld
	}
	if lost {
		return ErrLockOwnershipLost
	}
	return h.handBack(ctx, l.release(h.session, h.fence))
}

// giveBack takes one hold off the handle, at once and only here.
func (l *FencedLock) giveBack() (h *hold, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h = l.hold; h == nil {
		return nil, false
	}
	lost = h.isLost()
	if h.count--; h.count == 0 {
		l.hold = nil
		h.session.release(h)
	}
	return h, lost
}

func (l *FencedLock) release(s *Session, f Fence) *wire.Command {
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{
		Name: l.name, Session: s.id[:], Handle: l.handle, Fence: uint64(f),
		Election: l.space == wire.Space_ELECTION,
	}}}
}

// Fence returns the fence of the current hold. It does not block, needs no
// network and looks at the clock itself: a holder that was paused for longer
// than its session allows gets ErrLockOwnershipLost here even before Lost is
// closed. ErrNotHeld: the handle holds nothing.
func (l *FencedLock) Fence() (Fence, error) {
	f, err := l.current()
	return f, fault("fence", l.name, err)
}

func (l *FencedLock) current() (Fence, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.bad != nil:
		return 0, l.bad
	case l.hold == nil:
		return 0, ErrNotHeld
	case l.hold.isLost():
		return 0, ErrLockOwnershipLost
	}
	return l.hold.fence, nil
}

// Holds is how many holds of this handle have not been given back, lost ones
// included. It is local and informative.
func (l *FencedLock) Holds() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		return 0
	}
	return l.hold.count
}

// Lost returns a channel that is closed when the current hold is lost: when the
// session could not be renewed in time, by this process's own clock and before
// the group may hand the lock to another, or when the group has ended the
// session. It is not closed by Unlock. It is nil when nothing is held.
func (l *FencedLock) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		return nil
	}
	return l.hold.lost
}
