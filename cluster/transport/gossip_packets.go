package transport

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/internal/wire"
)

// packetLink sends packets to one target, as long as there are any.
type packetLink struct {
	to    Target
	queue *queue[[]byte]
}

// WriteTo queues a packet to any member.
func (g *Gossip) WriteTo(b []byte, addr string) (time.Time, error) {
	return g.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress queues a packet. It never blocks; undeliverable packets are lost.
func (g *Gossip) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	to, err := g.target(addr)
	if err != nil {
		return time.Time{}, err
	}
	if len(b) == 0 || len(b) > g.cfg.Limits.Packet {
		return time.Time{}, fmt.Errorf("%w: got a packet of %d bytes, want 1 to %d", ErrTooLarge, len(b), g.cfg.Limits.Packet)
	}
	link, err := g.link(to)
	if err != nil {
		return time.Time{}, err
	}
	// memberlist may use b again. A full queue is a lost packet, not an error.
	link.queue.push(append([]byte(nil), b...), len(b))
	return time.Now(), nil
}

// link returns the link to a target, which it starts if there is none.
func (g *Gossip) link(to Target) (*packetLink, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, ErrClosed
	}
	if l := g.links[to]; l != nil {
		return l, nil
	}
	limits := g.cfg.Limits
	if len(g.links) >= limits.Addresses {
		return nil, fmt.Errorf("%w: packets to more than %d addresses", ErrTooLarge, limits.Addresses)
	}
	l := &packetLink{to: to, queue: newQueue[[]byte](limits.Packets, 4*limits.Packet)}
	l.queue.reset(true)
	if !g.goroutines.start("packet writer", func() { g.runLink(l) }) {
		return nil, ErrClosed
	}
	g.links[to] = l
	return l, nil
}

// runLink dials and writes until the link is idle or breaks. The next packet
// starts another.
func (g *Gossip) runLink(l *packetLink) {
	err := g.serveLink(l)
	g.mu.Lock()
	delete(g.links, l.to)
	g.mu.Unlock()
	l.queue.reset(false)
	g.cfg.Logger.Debug("packet link ended", "addr", l.to.Addr, "error", err)
}

func (g *Gossip) serveLink(l *packetLink) error {
	c, err := g.handshaker.connect(g.ctx, l.to, wire.Kind_GOSSIP_PACKETS)
	if err != nil {
		return err
	}
	if !g.track(c) {
		return ErrClosed
	}
	s := newStream(c, g.cfg.Timing, g.cfg.Limits.Packet)
	started := g.goroutines.start("packet reader", func() {
		_, _ = s.read() // returns on anything but a keep-alive
		_ = s.Close()
	})
	if !started {
		_ = s.Close()
		return ErrClosed
	}
	encode := func(buf, packet []byte) ([]byte, error) { return appendFrame(buf, packet), nil }
	flush := func(s *stream) error { _, err := writeQueue(s, l.queue, encode); return err }
	return s.writeLoop(l.queue.ready, flush, g.cfg.Timing.Idle)
}
