// Package memnet is a network in memory for tests of whole groups. Members are
// numbered from 0; a test listens and dials on their behalf and puts faults on the
// links between them: partitions in one or both directions, delays, resets.
//
// It works inside and outside of the bubbles of testing/synctest: a goroutine that
// waits for the network is durably blocked, so that virtual time passes.
package memnet

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Network connects a fixed number of members. Without faults, what is sent
// arrives at once and in order. Its methods may be called from any goroutine.
type Network struct {
	members int

	mu        sync.Mutex
	listeners map[string]*listener // guarded by mu; by address
	links     map[direction]fault  // guarded by mu
	changed   chan struct{}        // guarded by mu; closed when a link or listener has changed
	conns     map[*conn]struct{}   // guarded by mu; the dialling ends
	refusing  map[int]bool         // guarded by mu; see Refuse
}

// direction is one half of a link.
type direction struct{ from, to int }

type fault struct {
	cut   bool
	delay time.Duration
	rate  *rate // nil: unlimited
}

// New returns a network of so many members.
func New(members int) *Network {
	return &Network{
		members:   members,
		listeners: make(map[string]*listener),
		links:     make(map[direction]fault),
		changed:   make(chan struct{}),
		conns:     make(map[*conn]struct{}),
		refusing:  make(map[int]bool),
	}
}

// Partition cuts the link between two members in both directions. Over a cut link
// nothing arrives and nothing fails, as on a network that drops every packet: what
// is sent, the end of a connection included, arrives after Heal, and dialling waits.
func (n *Network) Partition(a, b int) {
	n.edit(func(f *fault) { f.cut = true }, direction{a, b}, direction{b, a})
}

// PartitionOneWay cuts a link in one direction only.
func (n *Network) PartitionOneWay(from, to int) {
	n.edit(func(f *fault) { f.cut = true }, direction{from, to})
}

// Heal undoes Partition and PartitionOneWay.
func (n *Network) Heal(a, b int) {
	n.edit(func(f *fault) { f.cut = false }, direction{a, b}, direction{b, a})
}

// Isolate partitions a member from all others.
func (n *Network) Isolate(member int) {
	n.edit(func(f *fault) { f.cut = true }, n.linksOf(member)...)
}

// Rejoin heals all links of a member.
func (n *Network) Rejoin(member int) {
	n.edit(func(f *fault) { f.cut = false }, n.linksOf(member)...)
}

// Delay lets what is sent from now on in one direction arrive after d.
func (n *Network) Delay(from, to int, d time.Duration) {
	n.edit(func(f *fault) { f.delay = d }, direction{from, to})
}

// Throttle bounds what is sent from now on in one direction to so many bytes a second,
// over all connections together.
func (n *Network) Throttle(from, to, bytesPerSecond int) {
	n.edit(func(f *fault) { f.rate = &rate{perSecond: bytesPerSecond} }, direction{from, to})
}

// Reset breaks all connections of a member: both ends fail, and what was on its
// way is lost.
func (n *Network) Reset(member int) {
	for _, c := range n.connsOf(member) {
		c.in.reset()
		c.out.reset()
	}
}

// Refuse resets a member's connections, and refuses those that are dialed to it and by it from now on, as what stands
// between the member and the network may do. Listeners go on.
func (n *Network) Refuse(member int) {
	n.mu.Lock()
	n.refusing[member] = true
	n.announce()
	n.mu.Unlock()
	n.Reset(member)
}

// Accept undoes Refuse.
func (n *Network) Accept(member int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.refusing, member)
	n.announce()
}

// Discard drops what is on its way to and from a member: nothing retransmits what
// a machine had sent before it lost power.
func (n *Network) Discard(member int) {
	for _, c := range n.connsOf(member) {
		c.in.discard()
		c.out.discard()
	}
}

func (n *Network) linksOf(member int) (list []direction) {
	for other := range n.members {
		if other != member {
			list = append(list, direction{member, other}, direction{other, member})
		}
	}
	return list
}

func (n *Network) connsOf(member int) (list []*conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.from == member || c.to == member {
			list = append(list, c)
		}
	}
	return list
}

func (n *Network) edit(change func(*fault), links ...direction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range links {
		f := n.links[l]
		change(&f)
		n.links[l] = f
	}
	n.announce()
	for c := range n.conns {
		n.apply(c)
	}
}

// announce wakes the calls that wait for a change. It is called with mu held.
func (n *Network) announce() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// apply puts the faults of a connection's link on it. n.mu is held.
func (n *Network) apply(c *conn) {
	c.out.set(n.links[direction{c.from, c.to}])
	c.in.set(n.links[direction{c.to, c.from}])
}

// Listen takes an address for a member. An earlier listener of the address stays
// as it is and gets no further connections.
func (n *Network) Listen(member int, addr string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{net: n, member: member, addr: addr, backlog: make(chan net.Conn, 64), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l
}

// AwaitClosed blocks until nothing listens on an address.
func (n *Network) AwaitClosed(ctx context.Context, addr string) error {
	for {
		n.mu.Lock()
		l, changed := n.listeners[addr], n.changed
		n.mu.Unlock()
		if l == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Dialer returns a function for conclave.Config.Dial of a member.
func (n *Network) Dialer(member int) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) { return n.Dial(ctx, member, addr) }
}

// Dial connects a member to an address. It blocks while the link is cut in either
// direction.
func (n *Network) Dial(ctx context.Context, from int, addr string) (net.Conn, error) {
	l, err := n.reach(ctx, from, addr)
	if err != nil {
		return nil, err
	}
	ours, theirs := n.connect(from, l.member, addr)
	select {
	case l.backlog <- theirs:
		return ours, nil
	case <-l.closed:
		err = refused(addr)
	case <-ctx.Done():
		err = ctx.Err()
	}
	ours.Close()
	theirs.Close()
	return nil, err
}

func (n *Network) reach(ctx context.Context, from int, addr string) (*listener, error) {
	for {
		n.mu.Lock()
		l, changed := n.listeners[addr], n.changed
		cut := l != nil && (n.links[direction{from, l.member}].cut || n.links[direction{l.member, from}].cut)
		refuses := l != nil && (n.refusing[from] || n.refusing[l.member])
		n.mu.Unlock()
		switch {
		case l == nil || refuses:
			return nil, refused(addr)
		case !cut:
			return l, ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func refused(addr string) error { return fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED) }

func (n *Network) connect(from, to int, addr string) (ours, theirs *conn) {
	there, back := newPipe(), newPipe()
	ours = &conn{net: n, from: from, to: to, out: there, in: back, remote: tcpAddr(addr)}
	theirs = &conn{net: n, from: to, to: from, out: back, in: there, remote: tcpAddr("127.0.0.1:1")}
	ours.key, theirs.key = ours, ours
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[ours] = struct{}{}
	n.apply(ours) // the link may have been cut while dialling
	return ours, theirs
}

func tcpAddr(addr string) *net.TCPAddr {
	host, port, err := net.SplitHostPort(addr)
	number, portErr := strconv.Atoi(port)
	if err != nil || portErr != nil {
		return &net.TCPAddr{}
	}
	return &net.TCPAddr{IP: net.ParseIP(host), Port: number}
}

type listener struct {
	net     *Network
	member  int
	addr    string
	backlog chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		if l.net.listeners[l.addr] == l {
			delete(l.net.listeners, l.addr)
		}
		l.net.announce()
		l.net.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.backlog: // will not be accepted
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return tcpAddr(l.addr) }
