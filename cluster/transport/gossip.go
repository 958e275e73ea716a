package transport

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster/transport/gossipfilter"
	"github.com/conclave-go/conclave/cluster/transport/queue"
	"github.com/conclave-go/conclave/internal/wire"
)

// Gossip is the part of the group's port that package gossip uses: packets and streams, by
// target. Packets travel in frames over one connection for each target, dialed on demand and
// closed after an idle timeout. As with UDP, packets may be lost.
//
// What a member sends is checked by gossipfilter before it is passed on.
type Gossip struct {
	cfg        *Config // with defaults
	goroutines *goroutines
	handshaker *handshaker
	members    *peers
	ctx        context.Context // ends with Shutdown
	cancel     context.CancelFunc
	packets    chan *Packet
	streams    chan net.Conn
	heard      *gossipfilter.Incarnations

	mu    sync.Mutex // guards what follows
	shut  bool
	links map[Target]*packetLink
	conns map[*conn]struct{} // for Shutdown to close
}

// Packet is a packet of a member.
type Packet struct {
	Body     []byte
	From     net.Addr // where the member listens
	Received time.Time
}

const streamBacklog = 16

func newGossip(ctx context.Context, cfg *Config, g *goroutines, h *handshaker, members *peers) *Gossip {
	ctx, cancel := context.WithCancel(ctx)
	return &Gossip{
		cfg: cfg, goroutines: g, handshaker: h, members: members,
		ctx:     ctx,
		cancel:  cancel,
		packets: make(chan *Packet, cfg.Limits.Packets),
		streams: make(chan net.Conn, streamBacklog),
		links:   make(map[Target]*packetLink),
		conns:   make(map[*conn]struct{}),
		heard:   gossipfilter.NewIncarnations(wire.ProcessName(cfg.Identity.Member, cfg.Identity.Boot)),
	}
}

// Advertised returns the address that this member advertises, as an IP address, which is what
// gossip spreads.
func (g *Gossip) Advertised() (net.IP, int, error) {
	resolved, port, err := g.resolveHostPort(g.cfg.Identity.Advertise)
	if err != nil {
		return nil, 0, fmt.Errorf("transport: member %v advertises %q: %w: set Config.Advertise to a host and port that the other members can dial",
			wire.MemberID(g.cfg.Identity.Member), g.cfg.Identity.Advertise, err)
	}
	return resolved, port, nil
}

func (g *Gossip) resolveHostPort(addr string) (net.IP, int, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, 0, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, 0, fmt.Errorf("invalid port: want a number, got %q", port)
	}
	ip, err := g.ResolveIP(host)
	return ip, int(number), err
}

// ResolveIP returns an IP address of a host. It blocks until the name service answers, or
// Timing.Dial has passed.
func (g *Gossip) ResolveIP(host string) (net.IP, error) {
	ip := net.ParseIP(host)
	if ip == nil {
		ctx, cancel := context.WithTimeout(g.ctx, g.cfg.Timing.Dial)
		defer cancel()
		ips, err := g.handshaker.network.lookup(ctx, host)
		if err != nil {
			return nil, err
		}
		ip = ips[0].AsSlice() // there is one if err is nil
	}
	if v4 := ip.To4(); v4 != nil {
		return v4, nil
	}
	return ip, nil
}

// Packets returns the channel of received packets.
func (g *Gossip) Packets() <-chan *Packet { return g.packets }

// Streams returns the channel of accepted streams, which the receiver closes.
func (g *Gossip) Streams() <-chan net.Conn { return g.streams }

// MemberAt returns the target of a member at an IP address that it has advertised in gossip.
func (g *Gossip) MemberAt(member uint64, addr string) Target {
	return Target{Addr: addr, Member: member, Advertised: true, Host: g.members.advertisedName(member)}
}

// DialStream dials a stream, which the caller closes.
func (g *Gossip) DialStream(to Target, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(g.ctx, timeout)
	defer cancel()
	c, err := g.handshaker.connect(ctx, to, wire.Kind_GOSSIP_STREAM)
	if err != nil {
		return nil, err
	}
	if !g.track(c) {
		return nil, ErrClosed
	}
	return g.filterOf(c).Stream(c), nil
}

// acceptStream passes a connection to the receiver of Streams, which closes it.
func (g *Gossip) acceptStream(c *conn) {
	if !g.track(c) {
		return
	}
	select {
	case g.streams <- g.filterOf(c).Stream(c):
	default:
		_ = c.Close() // the receiver does not keep up; the peer retries
	}
}

// acceptPackets reads a member's packets until its connection ends.
func (g *Gossip) acceptPackets(c *conn, h *hello) {
	if !g.track(c) {
		return
	}
	from, filter := replyAddr(h.Advertise, c.RemoteAddr()), g.filterOf(c)
	s := newStream(c, g.cfg.Timing, g.cfg.Limits.Packet)
	g.goroutines.keepAlive(s)
	for {
		body, err := s.read()
		if err != nil {
			g.cfg.Logger.Debug("packet connection closed", "addr", c.RemoteAddr(), "error", err)
			return
		}
		if !g.members.isMember(h.Member) {
			return // removed since its hello
		}
		passed, err := filter.Packet(body)
		if err != nil {
			g.handshaker.failures.gossip(c.from, c.RemoteAddr(), err)
		}
		if len(passed) == 0 {
			continue
		}
		p := &Packet{Body: append([]byte(nil), passed...), From: from, Received: time.Now()}
		select {
		case g.packets <- p:
		default: // dropped, as with UDP
		}
	}
}

// filterOf returns the filter for what arrives on a connection, whose process is proven.
func (g *Gossip) filterOf(c *conn) *gossipfilter.Filter {
	return g.heard.Filter(wire.ProcessName(c.from.Member, c.from.Boot), func(err error) { g.handshaker.failures.gossip(c.from, c.RemoteAddr(), err) })
}

// replyAddr returns where a packet's sender listens: the address that it
// advertises; if that is a name, its port at the address the packet came from.
func replyAddr(advertise string, remote net.Addr) net.Addr {
	host, port, err := net.SplitHostPort(advertise)
	if err != nil {
		return remote
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return remote
	}
	ip := net.ParseIP(host)
	if tcp, ok := remote.(*net.TCPAddr); ok && ip == nil {
		ip = tcp.IP
	}
	if ip == nil {
		return remote
	}
	return &net.TCPAddr{IP: ip, Port: number}
}

// track registers a connection for Shutdown to close. After Shutdown it closes
// the connection and returns false.
func (g *Gossip) track(c *conn) bool {
	g.mu.Lock()
	shut := g.shut
	if !shut {
		g.conns[c] = struct{}{}
	}
	g.mu.Unlock()
	if shut {
		_ = c.Close()
		return false
	}
	c.afterClose(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, c)
	})
	return true
}

// Shutdown closes the connections of gossip. The port stays open for the other
// kinds of connections.
func (g *Gossip) Shutdown() error {
	g.mu.Lock()
	g.shut = true
	open := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		open = append(open, c)
	}
	g.mu.Unlock()
	g.cancel()
	for _, c := range open {
		_ = c.Close()
	}
	return nil
}

// packetLink sends packets to one target, as long as there are any.
type packetLink struct {
	to    Target
	queue *queue.Queue[[]byte]
}

// SendPacket queues a packet. It never blocks; undeliverable packets are lost.
func (g *Gossip) SendPacket(to Target, b []byte) error {
	if len(b) == 0 || len(b) > g.cfg.Limits.Packet {
		return fmt.Errorf("%w: got a packet of %d bytes, want 1 to %d", ErrTooLarge, len(b), g.cfg.Limits.Packet)
	}
	link, err := g.link(to)
	if err != nil {
		return err
	}
	// The caller may use b again. A full queue is a lost packet, not an error.
	link.queue.Push(0, append([]byte(nil), b...), len(b))
	return nil
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
	l := &packetLink{to: to, queue: queue.New[[]byte](limits.Packets, 4*limits.Packet)}
	l.queue.Reset(true)
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
	l.queue.Reset(false)
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
	return s.writeLoop(l.queue.Ready, flush, g.cfg.Timing.Idle)
}
