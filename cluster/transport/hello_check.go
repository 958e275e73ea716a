package transport

import (
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/conclave-go/conclave/cluster/transport/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// Peer is the other side of a connection, which has proven that it has the member's key.
type Peer struct {
	Member       uint64
	Key          ed25519.PublicKey // whose fingerprint is Member
	Name         string
	Advertise    string // host:port
	Remote       string // address of this connection's other end
	Inbound      bool   // the peer connected to this member
	Kind         wire.Kind
	Cluster      wire.ID // zero: none yet
	Incarnation  wire.ID
	Boot         uint64
	Durable      Durable
	FeatureLevel uint32               // the highest that its process supports
	FurtherGroup uint32               // see Identity
	TLS          *tls.ConnectionState // nil: plaintext
	Closed       <-chan struct{}      // closed when the connection is, also at the end of the handshake's time
}

func peerOf(c *conn, h *hello, kind wire.Kind) Peer {
	p := Peer{
		Member: h.Member, Key: h.key, Name: h.Name, Advertise: h.Advertise, Remote: c.RemoteAddr().String(), Inbound: c.inbound,
		Kind: kind, Cluster: h.Cluster, Incarnation: h.Incarnation, Boot: h.Boot,
		Durable: h.durable, FeatureLevel: h.FeatureLevel, FurtherGroup: h.FurtherGroup, Closed: c.done,
	}
	if secure, ok := c.Conn.(*tls.Conn); ok {
		state := secure.ConnectionState()
		p.TLS = &state
	}
	return p
}

// checkInbound decides whether to accept a proven inbound hello.
func (n *handshaker) checkInbound(c *conn, id *Identity, h *hello) *RefusedError {
	switch {
	case h.kind < wire.Kind_PEER || h.kind > wire.Kind_CLIENT:
		return &RefusedError{Reason: ReasonKind, Detail: h.kind.String()}
	case h.Group == id.Group && !otherCluster(id, h) && h.to != 0 && h.to != id.Member:
		return &RefusedError{Reason: ReasonMember, Detail: wrongMember(id.Member, h.to)}
	}
	if h.kind == wire.Kind_CLIENT {
		return n.admitClient(c, id, h)
	}
	if refused := n.checkHello(c, id, h, h.kind); refused != nil {
		return refused
	}
	release, ok := n.reserve(c, h)
	if !ok {
		return &RefusedError{Reason: ReasonBusy, Detail: fmt.Sprintf(
			"limit exceeded: another %v connection from member %v", h.kind, wire.MemberID(h.Member))}
	}
	var released atomic.Bool
	c.release = func() {
		if !released.Swap(true) {
			release()
		}
	}
	c.afterClose(c.release)
	return nil
}

// reserve reserves a place for an inbound connection with a proven hello.
func (n *handshaker) reserve(c *conn, h *hello) (release func(), ok bool) {
	if n.members.isMember(h.Member) {
		return n.limits.Reserve(h.Member, h.kind)
	}
	host := slots.HostOf(c.RemoteAddr())
	place := n.strangers.Begin(host, n.members.knownHost(host), false, func() { _ = c.Close() })
	return func() { n.strangers.End(place) }, place != nil
}

func wrongMember(got, want uint64) string {
	return fmt.Sprintf("this is the address of member %v, not of %v: check the port in Config.Advertise of both, or remove the second one if the first has replaced it",
		wire.MemberID(got), wire.MemberID(want))
}

// checkHello makes the checks that both sides share, most fundamental first.
// Either side may report the result, so the texts do not depend on the side.
func (n *handshaker) checkHello(c *conn, id *Identity, h *hello, kind wire.Kind) *RefusedError {
	isMember := n.members.isMember(h.Member)
	membersOnly := kind != wire.Kind_FORM
	sameCluster := !id.Cluster.IsZero() && h.Cluster == id.Cluster
	refuse := func(r Reason, format string, args ...any) *RefusedError {
		return &RefusedError{Reason: r, Detail: fmt.Sprintf(format, args...)}
	}
	member := wire.MemberID(h.Member)
	switch {
	case h.Group != id.Group:
		return refuse(ReasonGroup, "one member is configured for group %q, the other for %q: set the same Config.Group", h.Group, id.Group)
	case h.Member == id.Member && h.Incarnation == id.Incarnation:
		return refuse(ReasonSelf, "the address is that of the member that dialed it")
	case h.Member == id.Member:
		return refuse(ReasonClone, "two processes run as member %v, one of them on a copy of the data directory: stop that one, "+
			"or start it with an empty directory, as a new member", member)
	case otherCluster(id, h):
		return refuse(ReasonCluster, "one member belongs to cluster %v, the other to %v: correct Config.Join; "+
			"members of a group that was restored or recovered are not members of the new one: "+
			"start each with an empty directory, as a new member", h.Cluster, id.Cluster)
	case membersOnly && !sameCluster:
		return refuse(ReasonNoCluster, "one of the two members belongs to no cluster yet")
	case membersOnly && !isMember && n.cfg.Removed != nil && n.cfg.Removed(h.Member):
		return refuse(ReasonRemoved, "the group has removed member %v: start it with an empty directory, as a new member", member)
	case membersOnly && !isMember:
		if n.cfg.Endorsed != nil && len(h.endorsements) > 0 && n.askAdmission(c, h, kind) == nil {
			n.cfg.Endorsed(peerOf(c, h, kind), h.endorsements)
		}
		return refuse(ReasonNotMember, "member %v is unknown or removed", member)
	}
	if refused := n.boots.check(&h.Identity, n.isRegistered(&h.Identity)); refused != nil {
		return refused
	}
	if refused := n.processes.check(h.Member, h.Incarnation); refused != nil {
		return refused
	}
	return n.askAdmission(c, h, kind)
}

// otherCluster reports that both belong to clusters, and not to the same one.
func otherCluster(id *Identity, h *hello) bool {
	return !id.Cluster.IsZero() && !h.Cluster.IsZero() && h.Cluster != id.Cluster
}

// isRegistered reports whether the identity is of the process that the group has registered
// last.
func (n *handshaker) isRegistered(id *Identity) bool {
	return n.cfg.Registered != nil && n.cfg.Registered(id.Member) == id.Incarnation
}

// askAdmission asks Config.Admit.
func (n *handshaker) askAdmission(c *conn, h *hello, kind wire.Kind) *RefusedError {
	return askAdmission(n.cfg.Admit, c, h, kind)
}

func askAdmission(admit func(Peer) error, c *conn, h *hello, kind wire.Kind) *RefusedError {
	if admit == nil {
		return nil
	}
	err := admit(peerOf(c, h, kind))
	if err == nil {
		return nil
	}
	refused := &RefusedError{Reason: ReasonNotAdmitted, Detail: err.Error()}
	if own := (*RefusedError)(nil); errors.As(err, &own) {
		refused.Reason, refused.Detail = own.Reason, own.Detail
	}
	return refused
}
