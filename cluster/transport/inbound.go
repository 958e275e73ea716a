package transport

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/wire"
)

// inbound is a PEER connection from a member.
type inbound struct {
	conn        *conn
	incarnation wire.ID
	reported    bool          // PeerConnected has been called for the process, and PeerLost must follow
	done        chan struct{} // closed when its last Handler call has returned
}

// servePeer reads a member's frames. A newer connection replaces an older one,
// which may be dead without having noticed. It waits for the older one's reader,
// so that the Handler's calls stay sequential.
func (t *Transport) servePeer(c *conn, h *hello) {
	in := &inbound{conn: c, incarnation: h.Incarnation, done: make(chan struct{})}
	defer close(in.done)
	t.mu.Lock()
	older := t.inbound[h.Member]
	t.inbound[h.Member] = in
	t.mu.Unlock()
	if older != nil {
		_ = older.conn.Close()
		select {
		case <-older.done:
		case <-t.ctx.Done():
			return
		}
		in.reported = older.reported && older.incarnation == in.incarnation
	}
	err := ErrUnknownPeer // removed since its hello, when RemovePeer could not find in yet
	if t.isMember(h.Member) {
		in.reported = true
		t.Redial(h.Member) // it is up, so it can be dialed
		t.cfg.Handler.PeerConnected(h.Member, h.Advertise, h.Name)
		err = t.readFrames(c, h.Member)
	}
	_ = c.Close()
	if t.isLost(h.Member, in) && in.reported {
		in.reported = false // to a newer connection, which waits until the loss is handled
		t.log().Info("inbound connection lost", "member", wire.MemberID(h.Member), "error", closedByPeer(err))
		t.cfg.Handler.PeerLost(h.Member)
	}
	t.dropInbound(h.Member, in)
}

// readFrames passes frames to the Handler until the connection fails.
func (t *Transport) readFrames(c *conn, from uint64) error {
	s := newStream(c, t.cfg.Timing, t.cfg.Limits.Frame)
	t.keepAlive(s)
	for {
		body, err := s.read()
		if err != nil {
			return err
		}
		f := new(wire.Frame)
		if err := wire.Decode(body, f); err != nil {
			return fmt.Errorf("%w: %w", ErrBadFrame, err)
		}
		if f.GetBody() == nil {
			return fmt.Errorf("%w: unknown kind", ErrBadFrame)
		}
		t.cfg.Handler.Frame(from, f)
	}
}

// isLost reports whether a member is lost with a connection that has ended: not if the same process has
// reconnected, nor if this side is closing.
func (t *Transport) isLost(member uint64, in *inbound) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	current := t.inbound[member]
	return !t.closed && (current == in || current.incarnation != in.incarnation)
}

// dropInbound unregisters a connection that has ended. Until then a newer one waits for it.
func (t *Transport) dropInbound(member uint64, in *inbound) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inbound[member] == in {
		delete(t.inbound, member)
	}
}
