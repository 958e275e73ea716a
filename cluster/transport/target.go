package transport

import (
	"fmt"
	"net"

	"github.com/conclave-go/conclave/internal/wire"
)

// Target is what a connection is dialed for. A process that listens at an address that its
// owner has left can relay a handshake to another member, whose proofs are valid, and so be
// on the path of the connection. The member and the address in the hello, which is signed,
// show that.
type Target struct {
	Addr   string
	Member uint64 // the only one that is accepted; zero: any
	// Advertised states that Addr comes from the member that listens there. Otherwise it may
	// be another name of that member, such as that of a load balancer.
	Advertised bool
	// Host is the name that was resolved to the host of Addr. With TLS the certificate is
	// checked for it. Empty: for the host of Addr.
	Host string
}

// check refuses a proven hello that does not come from the target.
func (to Target) check(h *hello, kind wire.Kind) *RefusedError {
	switch {
	case to.Member != 0 && h.Member != to.Member:
		return &RefusedError{Reason: ReasonMember, Detail: wrongMember(h.Member, to.Member)}
	case to.Advertised && h.Advertise != to.Addr && !(isGossip(kind) && resolvesTo(h.Advertise, to.Addr)):
		return &RefusedError{Reason: ReasonAddress, Detail: fmt.Sprintf(
			"member %v was dialed at %s and advertises %s: if nothing shows that it has moved there, correct its Config.Advertise "+
				"or stop the process that relays from the address dialed", wire.MemberID(h.Member), to.Addr, h.Advertise)}
	}
	return nil
}

func isGossip(kind wire.Kind) bool {
	return kind == wire.Kind_GOSSIP_PACKETS || kind == wire.Kind_GOSSIP_STREAM
}

// resolvesTo reports whether memberlist may dial addr for a member that advertises
// advertise: it dials IP addresses. Only the member resolves its own name.
func resolvesTo(advertise, addr string) bool {
	host, port, err := net.SplitHostPort(advertise)
	if err != nil {
		return false
	}
	dialed, dialedPort, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && port == dialedPort && (ip == nil || ip.Equal(net.ParseIP(dialed)))
}
