package conclave

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// SessionID names a session. It prints as a UUID and is never used twice.
type SessionID [16]byte

// String prints the ID as a UUID is printed.
func (id SessionID) String() string { return wire.ID(id).String() }

// SessionInfo is a session as the group has it.
type SessionInfo struct {
	ID             SessionID
	Name           string
	Node           MemberID      // whose process it belongs to
	TTL, LockDelay time.Duration // as it was created
	Remaining      time.Duration // until it ends, unless it is renewed
	CreateIndex    uint64
}

// Session is what locks are held by. It lives for as long as its process renews
// it, which the node does by itself, and for its TTL after that. When it ends,
// everything held by it is released.
//
// Each node has a session of its own, opened when it is first needed.
type Session struct {
	node *Node
	id   wire.ID
	ttl  time.Duration
	done chan struct{}

	mu       sync.Mutex
	deadline instant            // guarded by mu; nobody else can be granted anything before it
	timer    *time.Timer        // guarded by mu
	holds    map[*hold]struct{} // guarded by mu
	err      error              // guarded by mu; why it ended, nil while it lives
}

// newSession is called when the group has opened the session. sent is when it
// was asked to.
func newSession(n *Node, id wire.ID, ttl time.Duration, sent instant) *Session {
	s := &Session{
		node: n, id: id, ttl: ttl,
		done:     make(chan struct{}),
		deadline: sent + instant(trusted(ttl)),
		holds:    make(map[*hold]struct{}),
	}
	s.mu.Lock() // the timer may run at once
	defer s.mu.Unlock()
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
// says which.
//
// A session that is ended on purpose, by CloseSession or because its process
// was started anew, ends in the group at once. A process that is cut off at that
// moment learns of it only at its own deadline; fences are for that.
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
		s.node.pursue(closing(s.id, false), forget)
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
	s.timer.Stop()
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
	if s.alive() != nil {
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

// opening is the node's own session being opened. Many may wait for it.
type opening struct {
	done chan struct{}
	err  error // valid once done is closed
}

// ownSession returns the node's own session, and opens it if there is none. It
// blocks until the group has done so.
func (n *Node) ownSession(ctx context.Context) (*Session, error) {
	for {
		if err := n.usable(); err != nil {
			return nil, err
		}
		n.mu.Lock()
		own, waited, first := n.own, n.opening, false
		if own == nil && waited == nil {
			waited, first = &opening{done: make(chan struct{})}, true
			n.opening = waited
		}
		n.mu.Unlock()
		if first {
			n.openOwn(waited)
		}
		if own != nil {
			if own.alive() == nil {
				return own, nil
			}
			n.drop(own)
			continue
		}
		select {
		case <-waited.done:
			if waited.err != nil {
				return nil, waited.err
			}
		case <-ctx.Done():
			// Nothing is held by a session that nobody has seen yet.
			return nil, because(ErrUnavailable, ctx)
		}
	}
}

// openOwn asks the group for a session, for whoever waits and is still there
// when it comes.
func (n *Node) openOwn(o *opening) {
	id, sent := wire.ID(newSessionID()), n.clock.now()
	cmd := &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		Id: id[:], Name: n.cfg.Name, Ttl: int64(n.cfg.SessionTTL),
	}}}
	n.pursue(cmd, func(a answer) {
		err := ours(a.err)
		if err == nil {
			err = refusal(a.reply)
		}
		var s *Session
		if err == nil {
			s = newSession(n, id, n.cfg.SessionTTL, sent)
		}
		n.mu.Lock()
		n.opening = nil
		late := n.closing
		if s != nil && !late {
			n.own = s
			n.sessions[id] = s
		}
		n.mu.Unlock()
		if s != nil && late {
			s.end(ErrClosed) // the farewell has closed it with the others, or will
		}
		// The group has forgotten this process and takes it back; whoever
		// waits asks again.
		if !errors.Is(err, ErrSessionExpired) && !errors.Is(a.err, cluster.ErrForgotten) {
			o.err = err
		}
		close(o.done)
	})
}

func newSessionID() (id SessionID) {
	rand.Read(id[:]) // never fails
	return id
}

// drop strikes a session off that has ended.
func (n *Node) drop(s *Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sessions, s.id)
	if n.own == s {
		n.own = nil
	}
}

// aliveSessions lists the sessions of this node that have not ended.
func (n *Node) aliveSessions() []*Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]*Session, 0, len(n.sessions))
	for _, s := range n.sessions {
		list = append(list, s)
	}
	return list
}

func (n *Node) endSessions(why error) {
	for _, s := range n.aliveSessions() {
		s.end(why)
	}
}

// sessionEnded is told by the log that a session of this process has ended.
func (n *Node) sessionEnded(e wire.Ended) {
	n.mu.Lock()
	s := n.sessions[e.Session]
	n.mu.Unlock()
	if s != nil {
		s.end(fmt.Errorf("%w: the group has ended it", ErrSessionExpired))
	}
}

// restored compares the sessions with a state that came by snapshot: the
// entries that it stands for may have ended some.
func (n *Node) restored(state cluster.Machine) {
	m := state.(*machine.Machine)
	for _, s := range n.aliveSessions() {
		if _, alive := m.Session(s.id); !alive {
			s.end(fmt.Errorf("%w: the group has ended it", ErrSessionExpired))
		}
	}
}

// Sessions lists the sessions of the whole group, by age. It is linearizable
// and blocks until a majority has confirmed that this node is up to date.
func (n *Node) Sessions(ctx context.Context) ([]SessionInfo, error) {
	var list []SessionInfo
	err := n.read(ctx, func(m *machine.Machine) {
		for _, s := range m.Sessions() {
			list = append(list, SessionInfo{
				ID: SessionID(s.ID), Name: s.Name, Node: MemberID(s.Member),
				TTL: duration(s.TTL), LockDelay: duration(s.LockDelay),
				Remaining: duration(s.Remaining), CreateIndex: s.CreateIndex,
			})
		}
	})
	if err != nil {
		return nil, fault("list sessions", "", err)
	}
	return list, nil
}

// CloseSession ends any session of the group by force: the operator's door. What
// it held is released at once, or after its lock-delay if it has one, and its
// owner is told. An owner that is cut off at that moment learns of it only when
// its own deadline passes, and may until then believe that it holds what others
// have been granted: fences and lock-delay are for that.
//
// It blocks until the group has done so. Errors: ErrSessionNotFound,
// ErrUnavailable, ErrUnknown.
func (n *Node) CloseSession(ctx context.Context, id SessionID) error {
	err := n.usable()
	if err == nil {
		var reply *wire.Reply
		if reply, err = n.exec(ctx, closing(wire.ID(id), false)); err == nil {
			err = refusal(reply)
		}
	}
	if errors.Is(err, ErrSessionExpired) {
		err = ErrSessionNotFound
	}
	return fault("close session", id.String(), err)
}

func closing(id wire.ID, graceful bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: id[:], Graceful: graceful}}}
}
