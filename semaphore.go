package conclave

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Semaphore is a handle to a semaphore of the group: a number of permits, its
// limit, of which never more are out than that. All who use it have to agree on
// the limit for as long as anybody holds or awaits a permit, and for ever once
// Resize has set it. A semaphore that nobody uses, and that was never resized, is
// forgotten, and its next user names the limit.
//
// A handle is not an owner; each Acquire stands for itself. It costs nothing and
// need not be closed. All methods are safe for concurrent use.
type Semaphore struct {
	node    *Node
	session *Session // what it acquires by; nil: the node's own
	name    string
	bad     error         // what is wrong with the name or the limit
	limit   atomic.Uint32 // that this handle takes for agreed
}

// SemaphoreInfo is a semaphore as the group has it. One that nobody uses, and
// that was never resized, has the limit of the handle that asks.
type SemaphoreInfo struct {
	Name      string
	Limit     int
	Available int // negative while more is out than Resize allows
	Waiters   int
	Holders   []PermitInfo  // by fence
	Delay     time.Duration // until the next permit is free that a lock-delay holds back
}

// PermitInfo is one Permit as the group has it.
type PermitInfo struct {
	Session SessionID
	Node    MemberID
	Fence   Fence
	Permits int
}

// Semaphore returns a new handle to the semaphore of that name, 1 to 512 bytes of
// UTF-8 without NUL, with a limit from 1 to 2,147,483,647. It does no work and
// does not block; a bad name or limit shows when the handle is used, as ErrInvalid
// or ErrTooLarge.
//
// What it acquires is held by the node's own session, with Config.SessionTTL and
// no lock-delay.
func (n *Node) Semaphore(name string, limit int) *Semaphore { return n.semaphore(nil, name, limit) }

// Semaphore returns a new handle to the semaphore of that name, like
// [Node.Semaphore]. What it acquires is held by this session, with its lock-delay:
// permits of a session that was invalidated stay out until that has passed. Once
// the session has ended, Acquire fails with ErrSessionExpired.
func (s *Session) Semaphore(name string, limit int) *Semaphore {
	return s.node.semaphore(s, name, limit)
}

func (n *Node) semaphore(session *Session, name string, limit int) *Semaphore {
	s := &Semaphore{node: n, session: session, name: name, bad: validName(name)}
	if s.bad == nil {
		s.bad = validLimit(limit)
	}
	if s.bad == nil {
		s.limit.Store(uint32(limit))
	}
	return s
}

func validLimit(limit int) error {
	if limit < 1 || limit > machine.MaxPermits {
		return fmt.Errorf("%w: a limit of %d; it has to be from 1 to %d", ErrInvalid, limit, machine.MaxPermits)
	}
	return nil
}

// Acquire takes n permits at once, as one Permit. It blocks, strictly first in,
// first out among all that wait in the group, until they are granted, ctx ends,
// or the session ends. A request for many is not overtaken by requests for few,
// which wait behind it even if there are permits enough for them.
//
// An error means that this call holds nothing: what may have been queued for it
// is withdrawn in the background, and a grant that won that race is given back.
// Errors: ctx's, with ErrUnavailable if no majority could be reached;
// ErrLimitMismatch; ErrTooLarge for more permits than the limit, and with too
// many waiters or calls under way; ErrSessionExpired if the session ended while
// waiting, or before for a handle that belongs to one session; ErrInvalid for
// less than one permit; ErrClosed.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Permit, error) {
	p, err := s.acquire(ctx, n, true)
	return p, fault("acquire", s.name, err)
}

// TryAcquire is Acquire without the wait for others: if the permits cannot be had
// at once, the error wraps ErrLocked, or ErrLockDelay when only lock-delays stand
// in the way. It blocks for as long as the group takes to decide.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Permit, error) {
	p, err := s.acquire(ctx, n, false)
	return p, fault("try acquire", s.name, err)
}

func (s *Semaphore) acquire(ctx context.Context, n int, wait bool) (*Permit, error) {
	limit := s.limit.Load()
	if err := s.validPermits(n, limit); err != nil {
		return nil, err
	}
	for {
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		if err := s.node.usable(); err != nil {
			return nil, err
		}
		session, err := s.node.acquireBy(ctx, s.session)
		if err != nil {
			return nil, err
		}
		p := &Permit{name: s.name}
		_, err = newAcquisition(p, session).run(ctx, &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Name: s.name, Session: session.id[:], Limit: limit, Permits: uint32(n), Wait: wait,
		}}})
		switch {
		case err == nil:
			return p, nil
		case !errors.Is(err, errRefusedSession):
			return nil, err
		}
		// It had ended before the request came, so nothing was queued. Only the
		// node's own session is replaced.
		session.end(ErrSessionExpired)
	}
}

func (s *Semaphore) validPermits(n int, limit uint32) error {
	switch {
	case s.bad != nil:
		return s.bad
	case n < 1:
		return fmt.Errorf("%w: %d permits; ask for at least 1", ErrInvalid, n)
	case uint64(n) > uint64(limit):
		return fmt.Errorf("%w: %d permits of a limit of %d; ask for less, or Resize", ErrTooLarge, n, limit)
	}
	return nil
}

// Resize changes the limit for everybody, and for this handle, whatever it was.
// Other handles have to be made with the new limit; theirs is refused with
// ErrLimitMismatch. Permits that are out stay out: after shrinking nothing is
// granted until what is out fits again, and waiters that ask for more than the
// new limit get ErrLimitMismatch. The group remembers the limit even when nobody
// uses the semaphore; it remembers at most 65,536 of them.
//
// It blocks until the group has agreed. Errors: ErrInvalid, ErrTooLarge,
// ErrClosed, and ctx's with ErrUnavailable or ErrUnknown.
func (s *Semaphore) Resize(ctx context.Context, limit int) error {
	return fault("resize", s.name, s.resize(ctx, limit))
}

func (s *Semaphore) resize(ctx context.Context, limit int) error {
	err := s.bad
	if err == nil {
		err = validLimit(limit)
	}
	if err == nil {
		err = s.node.usable()
	}
	if err != nil {
		return err
	}
	reply, err := s.node.exec(ctx, &wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{
		Name: s.name, Limit: uint32(limit),
	}}})
	if err == nil {
		err = refusal(reply)
	}
	if err == nil {
		s.limit.Store(uint32(limit))
	}
	return err
}

// Info says who holds permits, from anywhere in the group. It is linearizable
// and blocks until a majority has confirmed that this node is up to date.
// Between Info and what is done about it, everything may change.
func (s *Semaphore) Info(ctx context.Context) (SemaphoreInfo, error) {
	limit := int(s.limit.Load())
	info := SemaphoreInfo{Name: s.name, Limit: limit, Available: limit}
	err := s.bad
	if err == nil {
		err = s.node.read(ctx, func(m *machine.Machine) {
			if v, ok := m.Semaphore(s.name); ok {
				info = semaphoreInfo(s.name, v)
			}
		})
	}
	if err != nil {
		return SemaphoreInfo{}, fault("info", s.name, err)
	}
	return info, nil
}

func semaphoreInfo(name string, v machine.SemaphoreView) SemaphoreInfo {
	info := SemaphoreInfo{
		Name: name, Limit: int(v.Limit), Available: int(v.Available), Waiters: v.Waiters, Delay: duration(v.Delay),
	}
	for _, p := range v.Holders {
		info.Holders = append(info.Holders, PermitInfo{
			Session: SessionID(p.Session), Node: MemberID(p.Member), Fence: Fence(p.Fence), Permits: int(p.Permits),
		})
	}
	return info
}
