package transport

import (
	"fmt"

	"github.com/conclave-go/conclave/cluster/crash"
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
	if older := t.peers.enter(h.Member, in); older != nil {
		_ = older.conn.Close()
		select {
		case <-older.done:
		case <-t.ctx.Done():
			return
		}
		in.reported = older.reported && older.incarnation == in.incarnation
	}
	err := ErrUnknownPeer // removed since its hello, when RemovePeer could not find in yet
	if t.peers.isMember(h.Member) {
		in.reported = true
		closed := t.cfg.Crashes.Opened(crash.Process{Member: h.Member, Boot: h.Boot}, h.Incarnation, crash.Inbound)
		t.Redial(h.Member) // it is up, so it can be dialed
		t.cfg.Handler.PeerConnected(h.Member, h.Advertise, h.Name)
		err = t.readFrames(c, h.Member)
		closed(c.endedByHost())
	}
	_ = c.Close()
	if t.peers.isLost(h.Member, in) && in.reported {
		in.reported = false // to a newer connection, which waits until the loss is handled
		t.log().Info("inbound connection lost", "member", wire.MemberID(h.Member), "error", closedByPeer(err))
		t.cfg.Handler.PeerLost(h.Member)
	}
	t.peers.dropInbound(h.Member, in)
}

// readFrames passes frames to the Handler until the connection fails.
func (t *Transport) readFrames(c *conn, from uint64) error {
	s := newStream(c, t.cfg.Timing, t.cfg.Limits.Frame)
	t.goroutines.keepAlive(s)
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

// enter makes a connection the member's current one, and returns the one before; nil: there was none.
func (s *peers) enter(member uint64, in *inbound) (older *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	older = s.inbound[member]
	s.inbound[member] = in
	return older
}

// isLost reports whether a member is lost with a connection that has ended: not if the same process has
// reconnected, nor if this side is closing.
func (s *peers) isLost(member uint64, in *inbound) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.inbound[member]
	return !s.closed && (current == in || current.incarnation != in.incarnation)
}

// dropInbound unregisters a connection that has ended. Until then a newer one waits for it.
func (s *peers) dropInbound(member uint64, in *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inbound[member] == in {
		delete(s.inbound, member)
	}
}
