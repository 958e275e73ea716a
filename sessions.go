package conclave

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// SessionInfo is a session as the group has it.
type SessionInfo struct {
	ID             SessionID
	Name           string
	Node           MemberID      // whose process it belongs to, or did if that is gone
	TTL, LockDelay time.Duration // as it was created; TTL may be NoTTL
	Remaining      time.Duration // until it ends, unless it is renewed; 0 with NoTTL
	Behavior       Behavior
	Checks         []string // that it ends with
	CreateIndex    uint64
}

// acquireBy is what a handle acquires by: the session that it was made for, or
// the node's own, which is opened if there is none.
func (n *Node) acquireBy(ctx context.Context, fixed *Session) (*Session, error) {
	if fixed == nil {
		return n.ownSession(ctx)
	}
	return fixed, fixed.alive()
}

// adopt makes the node look after a session; false means that it is closing.
func (n *Node) adopt(s *Session) bool {
	n.mu.Lock()
	if n.closing {
		n.mu.Unlock()
		return false
	}
	n.sessions[s.id] = s
	n.mu.Unlock()
	if s.alive() != nil {
		n.drop(s) // its deadline came before this
	}
	n.renewal.hasten(s)
	return true
}

// drop strikes a session off that has ended.
func (n *Node) drop(s *Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sessions[s.id] == s {
		delete(n.sessions, s.id)
	}
	if n.own == s {
		n.own = nil
	}
}

// session returns a session of this node that has not ended, or nil.
func (n *Node) session(id wire.ID) *Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sessions[id]
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

// sessionEnded is told by the log that a session has ended, or is bound to a
// process no more.
func (n *Node) sessionEnded(e wire.Ended) {
	s := n.session(e.Session)
	switch {
	case s == nil:
	case !e.Unbound:
		s.end(endedByGroup())
	case s.incarnation == e.Incarnation:
		s.end(fmt.Errorf("%w: %w", ErrSessionExpired, errParted))
	}
}

func endedByGroup() error { return fmt.Errorf("%w: the group has ended it", ErrSessionExpired) }

// part lets go of the sessions without TTL that were bound to an incarnation
// which the group has forgotten: they live on there, bound to nobody, and
// another process may attach them. Those with a TTL have ended with it, and look
// after that themselves.
func (n *Node) part(incarnation wire.ID) {
	for _, s := range n.aliveSessions() {
		if s.ttl == NoTTL && s.incarnation == incarnation {
			s.end(fmt.Errorf("%w: %w", ErrSessionExpired, errParted))
		}
	}
}

// restored compares the sessions with a state that came by snapshot: the
// entries that it stands for may have ended some, or taken them from here.
func (n *Node) restored(state cluster.Machine) {
	m := state.(*machine.Machine)
	n.restores.Add(1)
	for _, s := range n.aliveSessions() {
		switch view, alive := m.Session(s.id); {
		case !alive:
			s.end(endedByGroup())
		case view.Incarnation != s.incarnation:
			s.end(fmt.Errorf("%w: %w", ErrSessionExpired, errParted))
		}
	}
}

// Sessions lists the sessions of the whole group, by age. It is linearizable
// and blocks until a majority has confirmed that this node is up to date. Errors:
// ErrUnavailable with ctx's, ErrTooLarge with too many reads under way, ErrClosed.
func (n *Node) Sessions(ctx context.Context) ([]SessionInfo, error) {
	var list []SessionInfo
	err := n.read(ctx, func(m *machine.Machine) {
		for _, s := range m.Sessions() {
			list = append(list, sessionInfo(s))
		}
	})
	if err != nil {
		return nil, fault("list sessions", "", err)
	}
	return list, nil
}

func sessionInfo(s machine.SessionView) SessionInfo {
	info := SessionInfo{
		ID: SessionID(s.ID), Name: s.Name, Node: MemberID(s.Member),
		TTL: duration(s.TTL), LockDelay: duration(s.LockDelay), Remaining: duration(s.Remaining),
		Behavior: Behavior(s.Behavior), Checks: slices.Clone(s.Checks), CreateIndex: s.CreateIndex,
	}
	if s.TTL == 0 {
		info.TTL = NoTTL
	}
	return info
}

// CloseSession ends any session of the group by force: the operator's door. What
// it held is released at once, or after its lock-delay if it has one, and its
// owner is told. An owner that is cut off at that moment learns of it only when
// its own deadline passes, and may until then believe that it holds what others
// have been granted: fences and lock-delay are for that.
//
// It blocks until the group has done so. Errors: ErrSessionNotFound; ErrTooLarge
// with too many calls under way; ErrClosed; ErrUnavailable or ErrUnknown with
// ctx's, and ErrUnknown alone if the group forgot this process meanwhile. It may be
// called again.
func (n *Node) CloseSession(ctx context.Context, id SessionID) error {
	err := n.usable()
	if err == nil {
		var reply *wire.Reply
		if reply, err = n.exec(ctx, closeCommand(wire.ID(id), false)); err == nil {
			err = refusal(reply)
		}
	}
	if errors.Is(err, ErrSessionExpired) {
		err = ErrSessionNotFound
	}
	return fault("close session", id.String(), err)
}
