package transport

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/wire"
)

// receive decides about an inbound hello.
func (t *Transport) receive(c *conn, id *Identity, h *hello) *RefusedError {
	switch {
	case h.refusal != "":
		return &RefusedError{Reason: ReasonMalformed, Detail: "a hello that opens a connection carries no refusal"}
	case h.kind < wire.Kind_PEER || h.kind > wire.Kind_FORM:
		return &RefusedError{Reason: ReasonKind, Detail: h.kind.String()}
	case h.Group == id.Group && h.to != 0 && h.to != id.Member:
		return &RefusedError{Reason: ReasonMember, Detail: fmt.Sprintf("this is the address of member %x, not of %x", id.Member, h.to)}
	}
	if refused := t.judge(id, h, h.kind, t.known(h.Member)); refused != nil {
		return refused
	}
	release, ok := t.slots.take(h.Member, h.kind)
	if !ok {
		return &RefusedError{Reason: ReasonBusy, Detail: fmt.Sprintf("member %x may not open another %v connection now", h.Member, h.kind)}
	}
	c.atEnd(release)
	return nil
}

// judge holds the checks that both sides make, in the order in which a person
// would want to hear of them.
func (t *Transport) judge(id *Identity, h *hello, kind wire.Kind, known bool) *RefusedError {
	ordered := kind == wire.Kind_PEER || kind == wire.Kind_SNAPSHOT // what only members of one cluster exchange
	same := !id.Cluster.IsZero() && h.Cluster == id.Cluster
	switch {
	case h.Group != id.Group:
		return &RefusedError{Reason: ReasonGroup, Detail: fmt.Sprintf("one member is configured for group %q, the other for %q", h.Group, id.Group)}
	case h.Member == id.Member && h.Incarnation == id.Incarnation:
		return &RefusedError{Reason: ReasonSelf, Detail: "the address leads back to the member that dialled it"}
	case h.Member == id.Member:
		return &RefusedError{Reason: ReasonClone, Detail: fmt.Sprintf(
			"two processes say they are member %x: one runs on a copy of the other's directory, let it join with an empty one", id.Member)}
	case !id.Cluster.IsZero() && !h.Cluster.IsZero() && !same:
		return &RefusedError{Reason: ReasonCluster, Detail: fmt.Sprintf("one member belongs to cluster %v, the other to %v", h.Cluster, id.Cluster)}
	case ordered && !same:
		return &RefusedError{Reason: ReasonNoCluster, Detail: "one of the two members belongs to no cluster yet"}
	case ordered && !known && t.cfg.Left != nil && t.cfg.Left(h.Member):
		return &RefusedError{Reason: ReasonLeft, Detail: fmt.Sprintf("member %x has left the group for good", h.Member)}
	case ordered && !known:
		return &RefusedError{Reason: ReasonStranger, Detail: fmt.Sprintf("member %x is not known here, or was removed", h.Member)}
	case known && same:
		return t.boots.admit(&h.Identity)
	}
	return t.boots.check(&h.Identity)
}
