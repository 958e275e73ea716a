package conclave

import (
	"context"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
)

// AttachSession takes a session with NoTTL over from an earlier process, of this
// member or of another, that is gone. If this node has the session already, it
// returns that one. It blocks until the group has decided. When ctx ends first,
// the session may have been bound to this process all the same; AttachSession
// returns it then when it is called again.
//
// The session is there to be taken over if it was opened with NoChecks, or its
// checks have not ended it: gossip, the default, ends it soon after its process.
//
// What the session held stays held: nobody else can have it. To use it, do what
// the earlier process did. The first Lock or TryLock of a lock, Campaign in an
// election, or Acquire of as many permits, takes over what the session holds, at
// once, ahead of everybody who waits, and under a new fence, so that the resource
// refuses the earlier process from the first request on. The session's checks are
// from now on those of this member.
//
// Errors: ErrSessionNotFound; ErrLocked when the session belongs to a process
// that lives, as far as the group knows: it forgets one at once that takes leave
// or is started anew, and otherwise after a minute of silence, if no session of
// it with a TTL is left by then; ErrInvalid when the session has a TTL, or this
// member lacks one of its checks; ErrCheckCritical; ErrTooLarge; ErrClosed; and
// ctx's with ErrUnavailable or ErrUnknown.
func (n *Node) AttachSession(ctx context.Context, id SessionID) (*Session, error) {
	s, err := n.attach(ctx, wire.ID(id))
	return s, fault("attach session", id.String(), err)
}

func (n *Node) attach(ctx context.Context, id wire.ID) (*Session, error) {
	for {
		if err := n.usable(); err != nil {
			return nil, err
		}
		if s := n.session(id); s != nil && s.alive() == nil {
			return s, nil
		}
		cmd := &wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: id[:]}}}
		o := n.newOpening(SessionConfig{TTL: NoTTL})
		o.id = id
		var attached *Session // written before send returns nil
		reply, err := n.send(ctx, cmd, func(a answer) { attached = o.attached(a) })
		switch {
		case errors.Is(err, cluster.ErrUnregistered), err == nil && (answer{reply: reply}).unregistered():
			continue
		case err != nil:
			return nil, err
		}
		if err := attachFault(reply); err != nil {
			return nil, err
		}
		if attached != nil && attached.alive() == nil {
			return attached, nil
		}
		// Something has come between; ask what has become of it.
	}
}

func attachFault(r *wire.Reply) error {
	switch r.GetCode() {
	case wire.Code_SESSION_EXPIRED:
		return ErrSessionNotFound
	case wire.Code_LOCKED:
		return fmt.Errorf("%w: the session belongs to a process that lives", ErrLocked)
	}
	return refusal(r)
}

// attached makes the session that the group has bound to this process, also if
// the caller has left: it belongs here now. It runs on the node's loop. nil means
// that there is none, or that it has to be asked for again.
func (o *opening) attached(a answer) *Session {
	if a.fault() != nil || o.overtaken() {
		return nil
	}
	if s := o.node.session(o.id); s != nil {
		return s // another call was faster
	}
	s := newSession(o.node, o.id, a.incarnation, NoTTL, o.sent)
	if !o.node.adopt(s) {
		s.end(ErrClosed)
	}
	return s
}
