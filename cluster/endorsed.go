package cluster

import (
	"bytes"
	"crypto/ed25519"
	"slices"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// endorsed implements transport.Config.Endorsed: a peer that is no member as far as this member
// knows has presented endorsements. If they are valid, or this member's log has its admission
// and not its membership yet, its next connection is accepted.
func (m *Member) endorsed(p transport.Peer, chain []*wire.Endorsement) {
	s := m.replica.Status()
	if s == nil || s.Leader != 0 { // the leader vouches
		return
	}
	var by []uint64
	if !slices.ContainsFunc(s.Admitted, func(r wire.MemberRecord) bool { return r.ID == p.Member }) {
		by = identity.VerifyEndorsements(m.identity.Get().GetCluster(), chain, p.Key, max(s.Applied, m.identity.Admission()), m.isKeyOfMember)
		if len(by) == 0 {
			return
		}
	}
	select {
	case m.replica.Queue() <- func(*core.Core) { m.receiveEndorsed(p, by) }:
	default: // the peer connects again
	}
}

// isKeyOfMember reports whether a key is that of this member, or of one that it knows.
func (m *Member) isKeyOfMember(key ed25519.PublicKey) bool {
	id := wire.FingerprintOf(key)
	if id == m.identity.Member {
		return bytes.Equal(key, m.identity.Public())
	}
	recorded := m.roster.Key(id)
	return m.isMember(id) && (len(recorded) == 0 || bytes.Equal(key, recorded))
}

// receiveEndorsed accepts an endorsed member until this member's log grows; over its connection
// that member states how far. It runs on the loop's goroutine.
func (m *Member) receiveEndorsed(p transport.Peer, by []uint64) {
	m.reconsiderVouched()
	s := m.core.Status()
	v := &wire.VouchedMember{Member: p.Member, Key: p.Key, Name: p.Name, Advertise: p.Advertise}
	if m.vouch(s, v, voucher{index: s.Applied + 1, by: by}) {
		m.log.Info("members that this member knows have endorsed a member", "member", wire.MemberID(p.Member), "name", p.Name, "addr", p.Advertise)
		m.setMembership(s.Membership)
	}
}
