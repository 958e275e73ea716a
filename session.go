package conclave

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
)

// SessionID names a session. It prints as a UUID and is never used twice.
type SessionID [16]byte

// String prints the ID as a UUID is printed.
func (id SessionID) String() string { return wire.ID(id).String() }

// Session is what locks, permits and keys are held by. It lives for as long as
// its process renews it, which the node does by itself, and for its TTL after
// that; with NoTTL it lives until somebody ends it. When it ends, everything held
// by it is released, after its lock-delay unless it was closed with Close.
//
// Each node has a session of its own, opened when it is first needed; further
// ones come from [Node.NewSession] and [Node.AttachSession]. All methods are safe
// for concurrent use.
type Session struct {
	node        *Node
	id          wire.ID
	incarnation wire.ID // of this process, that it is bound to
	ttl         time.Duration
	done        chan struct{}
	closing     closing

	mu       sync.Mutex
	deadline instant            // guarded by mu; nobody else can be granted anything before it
	timer    *time.Timer        // guarded by mu; nil without TTL
	holds    map[*hold]struct{} // guarded by mu
	err      error              // guarded by mu; why it ended, nil while it lives
}

// closing is a session's Close on its way.
type closing struct {
	once sync.Once
	told chan struct{} // closed when the group has answered
	err  error         // valid once told is closed
}

// newSession is called when the group has opened the session or bound it to this
// process. sent is when it was asked to.
func newSession(n *Node, id, incarnation wire.ID, ttl time.Duration, sent instant) *Session {
	s := &Session{
		node: n, id: id, incarnation: incarnation, ttl: ttl,
		done:     make(chan struct{}),
		closing:  closing{told: make(chan struct{})},
		deadline: math.MaxInt64,
		holds:    make(map[*hold]struct{}),
	}
	if ttl == NoTTL {
		return s
	}
	s.mu.Lock() // the timer may run at once
	defer s.mu.Unlock()
	s.deadline = sent + instant(trusted(ttl))
	s.timer = time.AfterFunc(n.clock.until(s.deadline), s.check)
	return s
}

// trusted is how long after an acknowledged renewal was sent a holder may rely
// on it: the TTL less what its clock may be slower than the leader's.
func trusted(ttl time.Duration) time.Duration { return ttl - ttl/100 }

// ID names the session.
func (s *Session) ID() SessionID { return SessionID(s.id) }

// Done is closed when the session is lost: past its deadline by this process's
// own clock, whatever the network does; ended by the group; or closed. Err then
// says which. A session with NoTTL has no deadline.
//
// A session that is ended on purpose, by CloseSession, by a check that has become
// critical, or because its process was started anew, ends in the group at once. A
// process that is cut off at that moment learns of it only at its own deadline;
// lock-delay and fences are for that.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is nil while the session lives. Afterwards it wraps ErrSessionExpired or
// ErrClosed. It looks at the clock itself.
func (s *Session) Err() error {
	return fault("session", s.id.String(), s.alive())
}

// alive reports why the session has ended; nil while it lives.
func (s *Session) alive() error {
	s.mu.Lock()
	expired := s.err == nil && s.node.clock.now() >= s.deadline
	err := s.err
	s.mu.Unlock()
	if expired {
		return s.expire()
	}
	return err
}

// check runs when the deadline may have come.
func (s *Session) check() {
	s.mu.Lock()
	left := s.node.clock.until(s.deadline)
	if s.err == nil && left > 0 {
		s.timer.Reset(left)
	}
	s.mu.Unlock()
	if left <= 0 {
		s.expire()
	}
}

// expire ends the session at its deadline: by then the group may let it go.
// What the group still keeps for it is of no use to anybody, so it is told.
func (s *Session) expire() error {
	ended := s.end(fmt.Errorf("%w: it could not be renewed for %v", ErrSessionExpired, trusted(s.ttl)))
	if ended {
		s.node.pursue(closeCommand(s.id, false), forget)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// end makes the session's end known here: first to who holds locks by it. It
// reports whether this call did it.
func (s *Session) end(why error) bool {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return false
	}
	s.err = why
	if s.timer != nil {
		s.timer.Stop()
	}
	holds := s.holds
	s.holds = nil
	s.mu.Unlock()
	for h := range holds {
		close(h.lost)
	}
	close(s.done)
	s.node.drop(s)
	for h := range holds {
		s.node.events.lockLost(h.name, h.fence)
	}
	s.node.events.sessionEnded(s.ID(), why)
	return true
}

// renewed moves the deadline: the group has acknowledged a renewal that was
// sent at that time. A session that is past its deadline stays lost.
func (s *Session) renewed(sent instant) {
	if s.ttl == NoTTL || s.alive() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = max(s.deadline, sent+instant(trusted(s.ttl)))
}

// keep lets a hold be lost with the session; false means that it is already.
func (s *Session) keep(h *hold) bool {
	if s.alive() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.holds[h] = struct{}{}
	return true
}

// release takes a hold that was given back out of the session's fate.
func (s *Session) release(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, h)
}

// Renew renews this session, and with it every session of the process, now and
// not when it is due. The node does so by itself; Renew is for a program that
// wants to know that the session was alive at some time after the call began. It
// blocks until the group has acknowledged it, and moves the deadline that Done
// goes by. Errors: ErrSessionExpired, ErrClosed, ErrTooLarge with too many calls under
// way, and ctx's with ErrUnavailable or ErrUnknown.
func (s *Session) Renew(ctx context.Context) error {
	err := s.alive()
	if err == nil {
		err = s.node.renewal.now(ctx)
	}
	if ended := s.alive(); ended != nil {
		err = ended
	}
	return fault("renew", s.id.String(), err)
}

// Close ends the session: first here, so that Done and the Lost channels of all
// that it holds are closed, then in the group, where everything is released at
// once and without a lock-delay. It blocks until the group has done so. When ctx
// ends first the close is pursued in the background, and the error wraps ctx's
// and ErrUnknown.
//
// Close may be called more than once. It does nothing and returns nil if the
// session had ended otherwise; but if it has ended only here and lives on in the
// group, as one with NoTTL can, the error says so: Node.CloseSession ends it.
func (s *Session) Close(ctx context.Context) error {
	return fault("close session", s.id.String(), s.close(ctx))
}

// errClosedHere and errParted are ways in which a session ends in this process.
var (
	errClosedHere = errors.New("it was closed")
	errParted     = errors.New("the group had forgotten this process; the session lives on there, to be attached or closed")
)

func (s *Session) close(ctx context.Context) error {
	s.end(fmt.Errorf("%w: %w", ErrSessionExpired, errClosedHere))
	if why := s.alive(); !errors.Is(why, errClosedHere) {
		if errors.Is(why, errParted) || s.ttl == NoTTL && errors.Is(why, ErrClosed) {
			return why
		}
		return nil
	}
	s.closing.once.Do(s.tellClosed)
	select {
	case <-s.closing.told:
		return s.closing.err
	case <-ctx.Done():
		return because(fmt.Errorf("%w yet; the close is pursued", ErrUnknown), ctx)
	}
}

// tellClosed tells the group that the session was closed. A session without TTL
// has to be told again if the group forgot this process meanwhile, as it has
// lost its process, and not ended.
func (s *Session) tellClosed() {
	s.node.pursue(closeCommand(s.id, true), func(a answer) {
		err := a.fault()
		if s.ttl == NoTTL && a.forgotten() && s.node.usable() == nil {
			s.tellClosed()
			return
		}
		switch {
		case errors.Is(err, ErrLocked): // another process has attached it meanwhile
			s.closing.err = fmt.Errorf("%w: %w", ErrSessionExpired, errParted)
		case !errors.Is(err, ErrSessionExpired) && !errors.Is(a.err, cluster.ErrUnregistered):
			s.closing.err = err
		}
		close(s.closing.told)
	})
}

func closeCommand(id wire.ID, graceful bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: id[:], Graceful: graceful}}}
}
