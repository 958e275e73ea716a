package conclavetest

import (
	"context"
	"maps"
	"net"
	"sync"
)

// network passes every connection between members through a relay, which can be severed.
//
// Unlike internal/memnet it uses real connections: a test may open another node that
// joins at a member's address, set its own Dial, and use a real port.
type network struct {
	mu      sync.Mutex
	owner   map[string]int      // guarded by mu; the member of each address, old ones included
	sides   []int               // guarded by mu; by member; equal sides reach each other
	changed chan struct{}       // guarded by mu; closed when the sides have changed
	relays  map[*relay]struct{} // guarded by mu; running
	running sync.WaitGroup
}

func newNetwork(n int) *network {
	return &network{
		owner:   make(map[string]int),
		sides:   make([]int, n),
		changed: make(chan struct{}),
		relays:  make(map[*relay]struct{}),
	}
}

// owns records a member's address. Former addresses remain: a dial across a partition
// must block, also to a dead process.
func (n *network) owns(member int, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.owner[addr] = member
}

func (n *network) connected(i, j int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sides[i] == n.sides[j]
}

type dialer func(ctx context.Context, addr string) (net.Conn, error)

// dialer returns the Dial function of a member. below opens the connections; nil is
// TCP.
func (n *network) dialer(from int, below dialer) dialer {
	if below == nil {
		below = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		to, err := n.reach(ctx, from, addr)
		if err != nil {
			return nil, err
		}
		far, err := below(ctx, addr)
		if err != nil {
			return nil, err
		}
		return n.relay(from, to, far), nil
	}
}

// reach blocks while the address is across a partition, and returns its member.
func (n *network) reach(ctx context.Context, from int, addr string) (to int, err error) {
	for {
		n.mu.Lock()
		to, known := n.owner[addr]
		if !known {
			to = from // not of the group, so never across a partition
		}
		cut, changed := n.sides[from] != n.sides[to], n.changed
		n.mu.Unlock()
		if !cut {
			return to, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// relay puts a relay between the dialling member and the connection, and returns the
// member's end.
func (n *network) relay(from, to int, far net.Conn) net.Conn {
	near, end := net.Pipe()
	r := &relay{from: from, to: to, near: end, far: far}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sides[from] != n.sides[to] {
		r.sever() // partitioned while dialling
	}
	n.relays[r] = struct{}{}
	n.running.Go(func() {
		r.run()
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.relays, r)
	})
	return addressed{near, far.LocalAddr(), far.RemoteAddr()}
}

// addressed is a member's end of a relay, with the addresses of the connection.
type addressed struct {
	net.Conn
	local, remote net.Addr
}

func (a addressed) LocalAddr() net.Addr  { return a.local }
func (a addressed) RemoteAddr() net.Addr { return a.remote }

// arrange assigns the members to sides.
func (n *network) arrange(sides []int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sides = sides
	close(n.changed)
	n.changed = make(chan struct{})
	for r := range n.relays {
		if sides[r.from] != sides[r.to] {
			r.sever()
		} else if r.isSevered() {
			r.end()
		}
	}
}

// close ends all relays. No member dials any more.
func (n *network) close() {
	n.mu.Lock()
	left := maps.Clone(n.relays)
	n.mu.Unlock()
	for r := range left {
		r.end()
	}
	n.running.Wait()
}
