package transport

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/wire"
)

// checkInbound decides whether to accept an inbound hello.
func (t *Transport) checkInbound(c *conn, id *Identity, h *hello) *RefusedError {
	switch {
	case h.refusal != "":
		return &RefusedError{Reason: ReasonMalformed, Detail: "the first hello of a connection carries a refusal"}
	case h.kind < wire.Kind_PEER || h.kind > wire.Kind_FORM:
		return &RefusedError{Reason: ReasonKind, Detail: h.kind.String()}
	case h.Group == id.Group && h.to != 0 && h.to != id.Member:
		return &RefusedError{Reason: ReasonMember, Detail: wrongMember(id.Member, h.to)}
	}
	if refused := t.checkHello(id, h, h.kind, t.isMember(h.Member)); refused != nil {
		return refused
	}
	release, ok := t.limits.reserve(h.Member, h.kind)
	if !ok {
		return &RefusedError{Reason: ReasonBusy, Detail: fmt.Sprintf(
			"limit exceeded: another %v connection from member %v", h.kind, wire.MemberID(h.Member))}
	}
	c.afterClose(release)
	return nil
}

func wrongMember(got, want uint64) string {
	return fmt.Sprintf("this is the address of member %v, not of %v: check the port in Config.Advertise of both",
		wire.MemberID(got), wire.MemberID(want))
}

// cannotJoin ends the refusals for which starting over with another directory
// suggests itself: this version offers no way back into the group.
const cannotJoin = "this version cannot add a member to an existing group"

// checkHello makes the checks that both sides share, most fundamental first.
// Either side may report the result, so the texts do not depend on the side.
func (t *Transport) checkHello(id *Identity, h *hello, kind wire.Kind, isMember bool) *RefusedError {
	membersOnly := kind == wire.Kind_PEER || kind == wire.Kind_SNAPSHOT
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
		return refuse(ReasonClone, "two processes run as member %v, one of them on a copy of the data directory: stop that one; %s", member, cannotJoin)
	case !id.Cluster.IsZero() && !h.Cluster.IsZero() && !sameCluster:
		return refuse(ReasonCluster, "one member belongs to cluster %v, the other to %v: correct Config.Join; %s", h.Cluster, id.Cluster, cannotJoin)
	case membersOnly && !sameCluster:
		return refuse(ReasonNoCluster, "one of the two members belongs to no cluster yet")
	case membersOnly && !isMember && t.cfg.Removed != nil && t.cfg.Removed(h.Member):
		return refuse(ReasonRemoved, "the group has removed member %v: %s", member, cannotJoin)
	case membersOnly && !isMember:
		return refuse(ReasonNotMember, "member %v is unknown or removed", member)
	case isMember && sameCluster:
		return t.boots.advance(&h.Identity)
	}
	return t.boots.check(&h.Identity)
}
