package conclavetest

import (
	"context"
	"maps"
	"net"
	"sync"
)

// network carries every connection between members over a relay, and a relay
// can be severed. It knows which member dials; whom it dials, it tells from the
// address.
type network struct {
	mu      sync.Mutex
	owner   map[string]int      // guarded by mu; of each address, its member; old addresses too
	sides   []int               // guarded by mu; by member: those on one side reach each other
	changed chan struct{}       // guarded by mu; closed when the sides have changed
	relays  map[*relay]struct{} // guarded by mu; those that have not ended
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

// owns notes that an address is a member's. Its old ones stay: who dials a dead
// member across a cut must not find out that it is dead.
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

// dialer returns the function by which a member dials. below opens the
// connections; nil is TCP.
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

// reach waits for as long as the address is on the other side of a cut, and
// returns whose it is.
func (n *network) reach(ctx context.Context, from int, addr string) (to int, err error) {
	for {
		n.mu.Lock()
		to, known := n.owner[addr]
		if !known {
			to = from // somebody outside of the group, whom nothing cuts off
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

// relay puts a relay between the member that dialled and the connection, and
// returns the member's end.
func (n *network) relay(from, to int, far net.Conn) net.Conn {
	near, end := net.Pipe()
	r := &relay{from: from, to: to, near: end, far: far}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sides[from] != n.sides[to] {
		r.sever() // the cut came while it was being opened
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

// addressed is a member's end of a relay with the addresses of the connection
// behind it.
type addressed struct {
	net.Conn
	local, remote net.Addr
}

func (a addressed) LocalAddr() net.Addr  { return a.local }
func (a addressed) RemoteAddr() net.Addr { return a.remote }

// arrange puts the members on sides.
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

// close ends what is left. Nobody dials any more.
func (n *network) close() {
	n.mu.Lock()
	left := maps.Clone(n.relays)
	n.mu.Unlock()
	for r := range left {
		r.end()
	}
	n.running.Wait()
}
