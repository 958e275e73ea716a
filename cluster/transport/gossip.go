package transport

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/cluster/transport/gossipfilter"
	"github.com/conclave-go/conclave/internal/wire"
)

// Gossip is memberlist's transport over the group's port. Packets travel in
// frames over one connection for each address, dialed on demand and closed after
// an idle timeout. As with UDP, packets may be lost.
type Gossip struct {
	cfg        *Config // with defaults
	goroutines *goroutines
	handshaker *handshaker
	members    *peers
	ctx        context.Context // ends with Shutdown
	cancel     context.CancelFunc
	packets    chan *memberlist.Packet
	streams    chan net.Conn
	heard      *gossipfilter.Incarnations

	mu    sync.Mutex // guards what follows
	shut  bool
	links map[Target]*packetLink
	conns map[*conn]struct{} // for Shutdown to close

	joining map[string]*joining // by the name that memberlist's Join is given
	joins   uint64              // that JoinAddress has counted
}

var _ memberlist.NodeAwareTransport = (*Gossip)(nil)

const streamBacklog = 16

func newGossip(ctx context.Context, cfg *Config, g *goroutines, h *handshaker, members *peers) *Gossip {
	ctx, cancel := context.WithCancel(ctx)
	return &Gossip{
		cfg: cfg, goroutines: g, handshaker: h, members: members,
		ctx:     ctx,
		cancel:  cancel,
		packets: make(chan *memberlist.Packet, cfg.Limits.Packets),
		streams: make(chan net.Conn, streamBacklog),
		links:   make(map[Target]*packetLink),
		conns:   make(map[*conn]struct{}),
		joining: make(map[string]*joining),
		heard:   gossipfilter.NewIncarnations(wire.ProcessName(cfg.Identity.Member, cfg.Identity.Boot)),
	}
}

// FinalAdvertiseAddr returns the advertised address as an IP address, which is
// what memberlist spreads.
func (g *Gossip) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip != "" {
		resolved, err := g.resolve(ip)
		return resolved, port, err
	}
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
	ip, err := g.resolve(host)
	return ip, int(number), err
}

func (g *Gossip) resolve(host string) (net.IP, error) {
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

// PacketCh returns the channel of received packets.
func (g *Gossip) PacketCh() <-chan *memberlist.Packet { return g.packets }

// StreamCh returns the channel of accepted streams.
func (g *Gossip) StreamCh() <-chan net.Conn { return g.streams }

// target returns what memberlist dials: a process of a member, or what is being joined.
func (g *Gossip) target(addr memberlist.Address) (Target, error) {
	if addr.Name == "" {
		return Target{Addr: addr.Addr}, nil
	}
	g.mu.Lock()
	j, joining := g.joining[addr.Name]
	g.mu.Unlock()
	if joining {
		return j.to, nil
	}
	member, ok := wire.MemberOf(addr.Name)
	if !ok {
		return Target{}, fmt.Errorf("%w: a process at %s has the name %q", gossipfilter.ErrGossip, addr.Addr, addr.Name)
	}
	return Target{Addr: addr.Addr, Member: member, Advertised: true, Host: g.members.advertisedName(member)}, nil
}

// DialTimeout dials a stream to any member.
func (g *Gossip) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return g.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout dials a stream.
func (g *Gossip) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	to, err := g.target(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(g.ctx, timeout)
	defer cancel()
	c, err := g.handshaker.connect(ctx, to, wire.Kind_GOSSIP_STREAM)
	if err != nil {
		g.noteJoin(addr.Name, err)
		return nil, err
	}
	if !g.track(c) {
		return nil, ErrClosed
	}
	return g.filterOf(c).Stream(c), nil
}

// acceptStream hands a connection to memberlist, which closes it.
func (g *Gossip) acceptStream(c *conn) {
	if !g.track(c) {
		return
	}
	select {
	case g.streams <- g.filterOf(c).Stream(c):
	default:
		_ = c.Close() // memberlist does not keep up; the peer retries
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
		p := &memberlist.Packet{Buf: append([]byte(nil), passed...), From: from, Timestamp: time.Now()}
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

// Shutdown closes memberlist's connections. The port stays open for the other
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
