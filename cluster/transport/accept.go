package transport

import (
	"errors"
	"net"
	"time"

	"github.com/conclave-go/conclave/cluster/transport/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// acceptLoop accepts connections until the listener is closed. Other failures
// (typically: too many open files) are temporary, so it retries.
func (t *Transport) acceptLoop() {
	const minWait, maxWait = 5 * time.Millisecond, time.Second
	wait := minWait
	for {
		raw, err := t.cfg.Listener.Accept()
		switch {
		case err == nil:
			wait = minWait
			t.admit(raw)
			continue
		case t.ctx.Err() != nil:
			return
		case errors.Is(err, net.ErrClosed):
			t.log().Error("listener closed by another owner: no peer can connect", "error", err)
			return
		}
		t.log().Error("accept failed", "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
			return
		}
		wait = min(2*wait, maxWait)
	}
}

// admit starts the handshake, unless policy or limits forbid it.
func (t *Transport) admit(raw net.Conn) {
	if !t.network.permitted(raw.RemoteAddr()) {
		t.failures.inbound(raw.RemoteAddr(), &ConnectError{Addr: raw.RemoteAddr().String(), Inbound: true, Err: ErrPlaintext})
		_ = raw.Close()
		return
	}
	c, ok := t.track(raw)
	if !ok {
		return
	}
	c.inbound = true
	host := slots.HostOf(raw.RemoteAddr())
	place := t.handshakes.Begin(host, t.knownHost(host), t.servesClients(), func() { _ = c.Close() })
	if place == nil {
		_ = c.Close() // members dial again
		return
	}
	c.place = place
	if !t.goroutines.start("inbound", func() { t.serve(c, place) }) {
		t.handshakes.End(place)
		_ = c.Close() // the transport is closed
	}
}

// serve runs one inbound connection.
func (t *Transport) serve(c *conn, place *slots.Slot) {
	given := false // to memberlist, which closes it
	defer func() {
		if !given {
			_ = c.Close()
		}
	}()
	h, err := t.answerIn(c, place)
	if err != nil {
		t.failures.inbound(c.RemoteAddr(), err)
		return
	}
	switch h.kind {
	case wire.Kind_GOSSIP_STREAM:
		given = true
		t.gossip.acceptStream(c)
	case wire.Kind_PEER:
		t.servePeer(c, h)
	case wire.Kind_GOSSIP_PACKETS:
		t.gossip.acceptPackets(c, h)
	case wire.Kind_SNAPSHOT:
		t.serveSnapshot(c, h)
	case wire.Kind_FORM:
		t.serveForm(c)
	case wire.Kind_CLIENT:
		t.serveClient(c, h)
	}
}

// serveClient has Config.Client serve the connection of a client, whose handshake is done.
func (t *Transport) serveClient(c *conn, h *hello) {
	l := t.cfg.Limits
	cc := newClientConn(c, peerOf(c, h, wire.Kind_CLIENT), t.cfg.Timing, clientLimits{read: l.ClientFrame, write: l.Frame, queue: l.ClientQueueBytes})
	cc.countIn(t.clientMemory)
	if !t.goroutines.start("client writer", cc.write) {
		return // the transport is closed
	}
	t.cfg.Client(cc)
	cc.Close(nil)
}
