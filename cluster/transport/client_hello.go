package transport

import (
	"crypto/ed25519"
	"fmt"

	"github.com/conclave-go/conclave/cluster/transport/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// A client is a process that is no member. The rules for its hello are here: those for
// members are in hello_check.go, and none of them applies. A client has no boot counter and
// no endorsements, and several connections of one are the business of the layer above.

// checkClient decides, at a member, about the proven hello of a client, most fundamental
// first.
func (n *handshaker) checkClient(c *conn, id *Identity, h *hello) *RefusedError {
	refuse := func(r Reason, format string, args ...any) *RefusedError {
		return &RefusedError{Reason: r, Detail: fmt.Sprintf(format, args...)}
	}
	if refused := sameGroup(id, &h.Identity); refused != nil {
		return refused
	}
	switch {
	case h.Member == id.Member || n.members.isMember(h.Member):
		return refuse(ReasonNotClient, "the key is that of member %v, and a client needs one of its own", wire.MemberID(h.Member))
	case h.Incarnation != wire.ClientIncarnation(h.key):
		return refuse(ReasonNotClient, "the incarnation is not the one that belongs to the key of client %v", wire.MemberID(h.Member))
	case n.cfg.Client == nil:
		return refuse(ReasonNoClients, "this member is not configured for clients: connect to another member")
	}
	if n.cfg.ClientsRefused != nil {
		if reason, why := n.cfg.ClientsRefused(h.FurtherGroup); reason != "" {
			return refuse(reason, "%s", why)
		}
	}
	return n.askAdmission(c, h, wire.Kind_CLIENT)
}

// admitClient is checkClient, and reserves a place for the connection.
func (n *handshaker) admitClient(c *conn, id *Identity, h *hello) *RefusedError {
	refused := n.checkClient(c, id, h)
	if refused == nil {
		release, ok := n.clients.Take(slots.HostOf(c.RemoteAddr()), func() { _ = c.Close() })
		if ok {
			c.afterClose(release)
			return nil
		}
		refused = &RefusedError{Reason: ReasonBusy, Detail: fmt.Sprintf(
			"limit exceeded: this member has connections of %d clients, and from no host more than from this one: connect to another member", n.cfg.Limits.Clients)}
	}
	refused.Client = true
	return refused
}

// servesClients reports whether a client could be accepted.
func (n *handshaker) servesClients() bool {
	return n.cfg.Client != nil && !n.identity().Cluster.IsZero()
}

// sameGroup makes the checks that the client and the member share. Either side may report
// the result, so the texts do not depend on the side.
func sameGroup(member, client *Identity) *RefusedError {
	switch {
	case client.Group != member.Group:
		return &RefusedError{Reason: ReasonGroup, Detail: fmt.Sprintf(
			"the client is configured for group %q, the member for %q: set the same group", client.Group, member.Group)}
	case member.Cluster.IsZero():
		return &RefusedError{Reason: ReasonNoCluster, Detail: "the member belongs to no cluster yet"}
	case !client.Cluster.IsZero() && client.Cluster != member.Cluster:
		return &RefusedError{Reason: ReasonCluster, Detail: fmt.Sprintf(
			"the client is known in cluster %v, the member belongs to %v: correct the addresses that the client has; "+
				"a group that was restored or recovered is another cluster, in which the client must begin again", client.Cluster, member.Cluster)}
	}
	return nil
}

// clientIdentity returns what the hello of a client contains.
func clientIdentity(group, name string, further uint32, key ed25519.PublicKey, cluster wire.ID) Identity {
	return Identity{
		Group: group, Name: name, Cluster: cluster, Member: wire.FingerprintOf(key), Incarnation: wire.ClientIncarnation(key),
		FeatureLevel: wire.FeatureLevel, FurtherGroup: further,
	}
}
