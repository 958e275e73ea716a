package cluster

import (
	"bytes"
	"crypto/ed25519"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/provisional"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// The members that this one accepts although its log does not show them yet (cluster/provisional). All of this runs on
// the loop's goroutine, but for vouched, and endorsed and what it asks.

// logOf returns what this member's log shows, with that configuration.
func (m *membership) logOf(conf *raftpb.ConfState) provisional.Log {
	return provisional.Log{Applied: m.core.Status().Applied, Conf: conf, Removed: m.core.Machine().Removed()}
}

// withProvisional returns a configuration with the members that are accepted besides.
func (m *membership) withProvisional(conf *raftpb.ConfState) *raftpb.ConfState {
	return m.provisional.With(m.logOf(conf), m.named(conf))
}

// named returns, while there is no configuration, the members that the admission of this one named.
func (m *membership) named(conf *raftpb.ConfState) (named []uint64) {
	if len(conf.GetVoters()) == 0 {
		for _, p := range m.roster.Snapshot().Peers {
			named = append(named, p.GetMember())
		}
	}
	return named
}

// sendMembership vouches to a peer for the members that this one has applied.
func (m *membership) sendMembership(peer uint64) {
	s := m.core.Status()
	if len(s.Membership.GetVoters()) == 0 {
		return
	}
	body := &wire.Membership{Index: s.Applied}
	for _, f := range membersOf(s.Membership, m.meta(), m.roster.Snapshot()) {
		body.Members = append(body.Members, &wire.VouchedMember{
			Member: f.GetMember(), Key: f.GetKey(), Name: f.GetName(), Advertise: f.GetAdvertise(),
		})
	}
	m.send(peer, &wire.Frame{Body: &wire.Frame_Membership{Membership: body}})
}

// vouched receives a frame of sendMembership, on the peer's reader. A peer sends one over each connection, and never again: so it is not dropped
// as other frames are while the loop is behind. Of those that wait the last has all that the others have.
func (m *membership) vouched(from uint64, body *wire.Membership) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.stated[from]
	if before == nil {
		m.post(func(*core.Core) { m.receiveStated(from) })
	}
	if before.GetIndex() <= body.GetIndex() { // after a restart a peer may have applied less
		m.stated[from] = body
	}
}

func (m *membership) receiveStated(from uint64) {
	m.mu.Lock()
	body := m.stated[from]
	delete(m.stated, from)
	m.mu.Unlock()
	m.receiveMembership(from, body)
}

// receiveMembership accepts the members for which a peer vouches.
func (m *membership) receiveMembership(from uint64, body *wire.Membership) {
	m.expireProvisional()
	conf := m.core.Status().Membership
	added := m.provisional.Vouched(m.logOf(conf), m.named(conf), from, body)
	for _, v := range added {
		m.noteProvisional(v)
		if v.GetMember() != from {
			m.log.Info("another member vouches for a member", "member", wire.MemberID(v.GetMember()), "name", v.GetName(), "by", wire.MemberID(from))
		}
	}
	if len(added) > 0 {
		m.set(conf)
	}
}

// endorsed implements transport.Config.Endorsed: a peer that is no member as far as this member
// knows has presented endorsements. If they are valid, or this member's log has its admission
// and not its membership yet, its next connection is accepted.
func (m *membership) endorsed(p transport.Peer, chain []*wire.Endorsement) {
	s := m.status()
	if s == nil || s.Leader != 0 { // the leader vouches
		return
	}
	var by []uint64
	if !slices.ContainsFunc(s.Admitted, func(r fact.MemberRecord) bool { return r.ID == p.Member }) {
		by = identity.VerifyEndorsements(m.identity.Get().GetCluster(), chain, p.Key, max(s.Applied, m.identity.Admission()), m.isKeyOfMember)
		if len(by) == 0 {
			return
		}
	}
	select {
	case m.queue <- func(*core.Core) { m.receiveEndorsed(p, by) }:
	default: // the peer connects again
	}
}

// isKeyOfMember reports whether a key is that of this member, or of one that it knows.
func (m *membership) isKeyOfMember(key ed25519.PublicKey) bool {
	id := wire.FingerprintOf(key)
	if id == m.identity.Member {
		return bytes.Equal(key, m.identity.Public())
	}
	recorded := m.roster.Key(id)
	return m.roster.IsMember(id) && (len(recorded) == 0 || bytes.Equal(key, recorded))
}

// receiveEndorsed accepts a member that others have endorsed.
func (m *membership) receiveEndorsed(p transport.Peer, by []uint64) {
	m.expireProvisional()
	conf := m.core.Status().Membership
	v := &wire.VouchedMember{Member: p.Member, Key: p.Key, Name: p.Name, Advertise: p.Advertise}
	if m.provisional.Endorsed(m.logOf(conf), v, by) {
		m.noteProvisional(v)
		m.log.Info("members that this member knows have endorsed a member", "member", wire.MemberID(p.Member), "name", p.Name, "addr", p.Advertise)
		m.set(conf)
	}
}

func (m *membership) noteProvisional(v *wire.VouchedMember) {
	m.noteMembers([]fact.MemberRecord{{ID: v.GetMember(), Name: v.GetName(), Advertise: v.GetAdvertise(), Key: v.GetKey()}})
}

// expireProvisional drops the members that are not accepted any more. It runs in each tick.
func (m *membership) expireProvisional() {
	if m.provisional.IsEmpty() {
		return
	}
	if conf := m.core.Status().Membership; m.provisional.Expire(m.logOf(conf)) {
		m.change(conf)
	}
}
