package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// acceptLoop takes connections until the listener is closed. Other failures
// (most often: out of file descriptors) pass, so it waits and goes on.
func (t *Transport) acceptLoop() {
	const longest = time.Second
	wait := 5 * time.Millisecond
	for {
		raw, err := t.cfg.Listener.Accept()
		switch {
		case err == nil:
			wait = 5 * time.Millisecond
			t.admit(raw)
			continue
		case t.ctx.Err() != nil:
			return
		case errors.Is(err, net.ErrClosed):
			t.log().Error("the listener was closed from outside, nobody can connect any more", "err", err)
			return
		}
		t.log().Error("cannot accept connections", "err", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
			return
		}
		wait = min(2*wait, longest)
	}
}

// admit starts the handshake, unless policy or limits forbid it.
func (t *Transport) admit(raw net.Conn) {
	if !t.permitted(raw.RemoteAddr()) {
		t.noteRefusal(raw.RemoteAddr(), ErrPlaintext)
		_ = raw.Close()
		return
	}
	if !t.slots.enter() {
		_ = raw.Close() // too many at once; a member will dial again
		return
	}
	c, ok := t.track(raw)
	if ok {
		ok = t.goroutines.start("inbound", func() { t.serve(c) })
	}
	if !ok {
		t.slots.leave()
		_ = c.Close() // the transport is closed
	}
}

// serve runs one inbound connection from its hello to its end.
func (t *Transport) serve(c *conn) {
	h, err := t.greet(c)
	t.slots.leave()
	if err != nil {
		t.noteRefusal(c.RemoteAddr(), err)
		_ = c.Close()
		return
	}
	if h.kind == wire.Kind_GOSSIP_STREAM {
		t.gossip.acceptStream(c) // memberlist closes it
		return
	}
	defer func() { _ = c.Close() }()
	switch h.kind {
	case wire.Kind_PEER:
		t.servePeer(c, h)
	case wire.Kind_GOSSIP_PACKETS:
		t.gossip.acceptPackets(c, h)
	case wire.Kind_SNAPSHOT:
		t.serveSnapshot(c, h)
	case wire.Kind_FORM:
		t.serveForm(c)
	}
}

// noteRefusal logs a refusal once for each host and reason; junk is no more
// than a matter of debugging.
func (t *Transport) noteRefusal(remote net.Addr, err error) {
	var refused *RefusedError
	if !errors.As(err, &refused) && !errors.Is(err, ErrPlaintext) {
		t.log().Debug("inbound connection without a valid hello", "remote", remote, "err", err)
		return
	}
	host, _, splitErr := net.SplitHostPort(remote.String())
	if splitErr != nil {
		host = remote.String()
	}
	if t.refusals.isNew(host, kindOf(err)) {
		level := slog.LevelWarn
		if refused != nil {
			level = refused.level()
		}
		t.log().Log(t.ctx, level, "inbound connection refused", "remote", remote, "err", err)
	}
}

// inbound is a PEER connection from a member.
type inbound struct {
	conn        *conn
	incarnation wire.ID
	done        chan struct{} // closed when its last Handler call has returned
}

// servePeer reads a member's frames. A newer connection replaces an older one,
// which may not have noticed yet that it is dead; it waits until the older
// one's reader is done, so that the Handler sees one after the other.
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
	}
	if !t.known(h.Member) {
		t.lostBy(h.Member, in) // removed since its hello, before RemovePeer could find it here
		return
	}
	t.Redial(h.Member) // it is there, so it can be dialled
	t.cfg.Handler.PeerConnected(h.Member, h.Advertise, h.Name)
	err := t.readFrames(c, h.Member)
	_ = c.Close()
	if t.lostBy(h.Member, in) {
		t.log().Info("connection from peer lost", "peer", fmt.Sprintf("%x", h.Member), "err", err)
		t.cfg.Handler.PeerLost(h.Member)
	}
}

// readFrames returns when the connection is of no more use.
func (t *Transport) readFrames(c *conn, from uint64) error {
	s := newStream(c, t.cfg.Timing, t.cfg.Limits.Frame)
	t.beats(s)
	for {
		body, err := s.read()
		if err != nil {
			return err
		}
		f := new(wire.Frame)
		if err := proto.Unmarshal(body, f); err != nil {
			return fmt.Errorf("%w: %w", ErrBadFrame, err)
		}
		if f.GetBody() == nil {
			return fmt.Errorf("%w: of no known kind", ErrBadFrame)
		}
		t.cfg.Handler.Frame(from, f)
	}
}

// lostBy strikes off a connection that ended, and reports whether the member
// is lost by it: not when the same process has connected anew, nor when it was
// this side that closed.
func (t *Transport) lostBy(member uint64, in *inbound) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	current := t.inbound[member]
	if current == in {
		delete(t.inbound, member)
	}
	return !t.closed && (current == in || current.incarnation != in.incarnation)
}
