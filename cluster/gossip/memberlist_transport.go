package gossip

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/cluster/transport/gossipfilter"
	"github.com/conclave-go/conclave/internal/wire"
)

// outgoing is what memberlist dials and sends, over the group's port.
type outgoing struct {
	port *transport.Gossip

	mu      sync.Mutex          // guards what follows
	joining map[string]*joining // by the name that memberlist's Join is given
	joins   uint64              // that joinAddress has counted
}

// joining is a target that memberlist joins, and the error of dialing it.
type joining struct {
	to  transport.Target
	err error
}

// joinAddress returns the address under which memberlist's Join dials a target, until
// done is called, which returns the error of dialing: memberlist keeps only its text.
// memberlist would resolve a name by its own means, without a bound, and dial what it finds
// without the name.
func (o *outgoing) joinAddress(to transport.Target) (address string, done func() error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.joins++
	name := fmt.Sprint("join-", o.joins)
	if o.joining == nil {
		o.joining = make(map[string]*joining)
	}
	o.joining[name] = &joining{to: to}
	// Only the name is used; memberlist needs an address to which nothing is sent.
	return name + "/" + net.JoinHostPort(net.IPv4zero.String(), "1"), func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		defer delete(o.joining, name)
		return o.joining[name].err
	}
}

// noteJoin notes the error of dialing, if memberlist joins that name.
func (o *outgoing) noteJoin(name string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if j := o.joining[name]; j != nil {
		j.err = err
	}
}

// target returns what memberlist dials: a process of a member, or what is being joined.
func (o *outgoing) target(addr memberlist.Address) (transport.Target, error) {
	if addr.Name == "" {
		return transport.Target{Addr: addr.Addr}, nil
	}
	o.mu.Lock()
	j, joining := o.joining[addr.Name]
	o.mu.Unlock()
	if joining {
		return j.to, nil
	}
	member, ok := wire.MemberOf(addr.Name)
	if !ok {
		return transport.Target{}, fmt.Errorf("%w: a process at %s has the name %q", gossipfilter.ErrGossip, addr.Addr, addr.Name)
	}
	return o.port.MemberAt(member, addr.Addr), nil
}

// The methods of memberlist.NodeAwareTransport, but for those of probeWatch:

// FinalAdvertiseAddr returns the advertised address as an IP address, which is
// what memberlist spreads.
func (o *outgoing) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip != "" {
		resolved, err := o.port.ResolveIP(ip)
		return resolved, port, err
	}
	return o.port.Advertised()
}

// StreamCh returns the channel of accepted streams.
func (o *outgoing) StreamCh() <-chan net.Conn { return o.port.Streams() }

// DialTimeout dials a stream to any member.
func (o *outgoing) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return o.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout dials a stream.
func (o *outgoing) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	to, err := o.target(addr)
	if err != nil {
		return nil, err
	}
	c, err := o.port.DialStream(to, timeout)
	if err != nil {
		o.noteJoin(addr.Name, err)
		return nil, err
	}
	return c, nil
}

// WriteTo queues a packet to any member.
func (o *outgoing) WriteTo(b []byte, addr string) (time.Time, error) {
	return o.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress queues a packet. It never blocks; undeliverable packets are lost.
func (o *outgoing) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	to, err := o.target(addr)
	if err == nil {
		err = o.port.SendPacket(to, b)
	}
	if err != nil {
		return time.Time{}, err
	}
	return time.Now(), nil
}
