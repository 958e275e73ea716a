package transport

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/internal/wire"
)

// packetLink carries packets to one address while there are any.
type packetLink struct {
	addr  string
	queue *queue[[]byte]
}

// WriteTo queues a packet. It never waits; what cannot be delivered is lost.
func (g *Gossip) WriteTo(b []byte, addr string) (time.Time, error) {
	if len(b) == 0 || len(b) > g.t.cfg.Limits.Packet {
		return time.Time{}, fmt.Errorf("%w: a packet of %d bytes, the limit is %d", ErrTooLarge, len(b), g.t.cfg.Limits.Packet)
	}
	link, err := g.link(addr)
	if err != nil {
		return time.Time{}, err
	}
	// memberlist may use b again. A full queue is a lost packet, not an error.
	link.queue.push(append([]byte(nil), b...), len(b))
	return time.Now(), nil
}

// WriteToAddress queues a packet.
func (g *Gossip) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return g.WriteTo(b, addr.Addr)
}

// link returns the link to an address, and makes one where there is none.
func (g *Gossip) link(addr string) (*packetLink, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, ErrClosed
	}
	if l := g.links[addr]; l != nil {
		return l, nil
	}
	limits := g.t.cfg.Limits
	if len(g.links) >= limits.Addresses {
		return nil, fmt.Errorf("%w: packets to more than %d addresses at once", ErrTooLarge, limits.Addresses)
	}
	l := &packetLink{addr: addr, queue: newQueue[[]byte](limits.Packets, 4*limits.Packet)}
	l.queue.setOpen(true)
	if !g.t.goroutines.start("packet writer", func() { g.carry(l) }) {
		return nil, ErrClosed
	}
	g.links[addr] = l
	return l, nil
}

// carry dials and writes until the link is idle or breaks. It does not dial
// again: the next packet does.
func (g *Gossip) carry(l *packetLink) {
	err := g.send(l)
	g.mu.Lock()
	delete(g.links, l.addr)
	g.mu.Unlock()
	l.queue.setOpen(false)
	g.t.log().Debug("packet link ended", "addr", l.addr, "err", err)
}

func (g *Gossip) send(l *packetLink) error {
	c, err := g.t.connect(g.ctx, l.addr, wire.Kind_GOSSIP_PACKETS, 0)
	if err != nil {
		return err
	}
	if !g.adopt(c) {
		return ErrClosed
	}
	s := newStream(c, g.t.cfg.Timing, g.t.cfg.Limits.Packet)
	watching := g.t.goroutines.start("packet reader", func() {
		_, _ = s.read() // only beats come back; anything else ends the link
		_ = s.Close()
	})
	if !watching {
		_ = s.Close()
		return ErrClosed
	}
	encode := func(buf, packet []byte) ([]byte, error) { return appendFrame(buf, packet), nil }
	flush := func(s *stream) error { return drain(s, l.queue, encode) }
	return s.pump(l.queue.ready, flush, g.t.cfg.Timing.Idle)
}
