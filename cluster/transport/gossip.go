package transport

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/internal/wire"
)

// Gossip is memberlist's transport over the group's port. Packets travel in
// frames over a connection per address that is dialled when needed and closed
// when idle; like UDP they may be lost.
type Gossip struct {
	t       *Transport
	ctx     context.Context // ends with Shutdown
	cancel  context.CancelFunc
	packets chan *memberlist.Packet
	streams chan net.Conn

	mu    sync.Mutex // guards what follows
	shut  bool
	links map[string]*packetLink
	conns map[*conn]struct{} // everything that Shutdown closes
}

var _ memberlist.NodeAwareTransport = (*Gossip)(nil)

const streamBacklog = 16

func newGossip(t *Transport) *Gossip {
	ctx, cancel := context.WithCancel(t.ctx)
	return &Gossip{
		t:       t,
		ctx:     ctx,
		cancel:  cancel,
		packets: make(chan *memberlist.Packet, t.cfg.Limits.Packets),
		streams: make(chan net.Conn, streamBacklog),
		links:   make(map[string]*packetLink),
		conns:   make(map[*conn]struct{}),
	}
}

// Gossip is the one transport for memberlist on this port. Before memberlist
// reads from it, and after its Shutdown, what arrives is dropped.
func (t *Transport) Gossip() *Gossip { return t.gossip }

// FinalAdvertiseAddr is the advertised address as an IP address, which is what
// memberlist passes on to others.
func (g *Gossip) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip == "" {
		host, p, err := net.SplitHostPort(g.t.cfg.Identity.Advertise)
		if err != nil {
			return nil, 0, fmt.Errorf("transport: advertised address: %w", err)
		}
		if port, err = strconv.Atoi(p); err != nil {
			return nil, 0, fmt.Errorf("transport: advertised address %q: the port is not a number", g.t.cfg.Identity.Advertise)
		}
		ip = host
	}
	resolved, err := g.resolve(ip)
	return resolved, port, err
}

func (g *Gossip) resolve(host string) (net.IP, error) {
	ip := net.ParseIP(host)
	if ip == nil {
		ctx, cancel := context.WithTimeout(g.ctx, g.t.cfg.Timing.Dial)
		defer cancel()
		ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
		if err != nil {
			return nil, fmt.Errorf("transport: advertised address: %w", err)
		}
		ip = ips[0] // without an error there is one
	}
	if v4 := ip.To4(); v4 != nil {
		return v4, nil
	}
	return ip, nil
}

// PacketCh delivers packets.
func (g *Gossip) PacketCh() <-chan *memberlist.Packet { return g.packets }

// StreamCh delivers streams.
func (g *Gossip) StreamCh() <-chan net.Conn { return g.streams }

// DialTimeout opens a stream.
func (g *Gossip) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(g.ctx, timeout)
	defer cancel()
	c, err := g.t.connect(ctx, addr, wire.Kind_GOSSIP_STREAM, 0)
	if err != nil {
		return nil, err
	}
	if !g.adopt(c) {
		return nil, ErrClosed
	}
	return c, nil
}

// DialAddressTimeout opens a stream.
func (g *Gossip) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return g.DialTimeout(addr.Addr, timeout)
}

// acceptStream hands a connection to memberlist, which closes it.
func (g *Gossip) acceptStream(c *conn) {
	if !g.adopt(c) {
		return
	}
	select {
	case g.streams <- c:
	default:
		_ = c.Close() // memberlist does not keep up; it tries again
	}
}

// acceptPackets reads a member's packets until its connection ends.
func (g *Gossip) acceptPackets(c *conn, h *hello) {
	if !g.adopt(c) {
		return
	}
	from := replyAddr(h.Advertise, c.RemoteAddr())
	s := newStream(c, g.t.cfg.Timing, g.t.cfg.Limits.Packet)
	g.t.beats(s)
	for {
		body, err := s.read()
		if err != nil {
			g.t.log().Debug("packet connection ended", "remote", c.RemoteAddr(), "err", err)
			return
		}
		p := &memberlist.Packet{Buf: append([]byte(nil), body...), From: from, Timestamp: time.Now()}
		select {
		case g.packets <- p:
		default: // as with UDP
		}
	}
}

// replyAddr is where a packet's sender listens: what it advertises, or where
// it advertises a name, that port at the address it came from.
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

// adopt notes a connection that Shutdown has to close; false: it is too late,
// and the connection is closed.
func (g *Gossip) adopt(c *conn) bool {
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
	c.atEnd(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, c)
	})
	return true
}

// Shutdown closes memberlist's connections. The port stays open: it is not
// memberlist's alone.
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
