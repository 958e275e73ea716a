package cluster

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"slices"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// A member that was down while all other members were replaced knows none of the new ones, so
// none that it believes could vouch for them (vouching.go); as a voter it may be needed for a
// quorum. So the member that admits a newcomer endorses it: it signs the newcomer's key and the
// index of the admission in the log. The newcomer presents that in each hello, behind the
// endorsements of the member that admitted it, back to a founder. A member that does not know it
// follows the chain from a member that it knows, and accepts it until its own log has caught up.
//
// The chain reaches a member that is known to any peer whose log ends before the newcomer's
// admission: the first member of the chain that the peer does not know was admitted after the
// end of that log, by a member that was one at its end.
//
// An endorsement does not expire. A member that was removed can use one, for itself and for
// others, only against a peer whose log ends before its own admission; and only until that log
// has its removal, when the peer drops it with all for which it has vouched.

const (
	endorsementContext = "conclave endorsement 1"
	// maxEndorsements bounds a chain, which is part of each hello. A longer one is shortened
	// by what is oldest: it was known only to members that missed that many admissions, each
	// by the member of the one before.
	maxEndorsements = 16
)

// endorse returns the endorsements of a member that was admitted at an index.
func (id *identity) endorse(newcomer ed25519.PublicKey, index uint64) []*wire.Endorsement {
	r := id.get()
	e := &wire.Endorsement{Key: id.public(), Signature: ed25519.Sign(id.key, endorsed(r.GetCluster(), newcomer, index)), Index: index}
	chain := append(r.GetEndorsements()[:len(r.GetEndorsements()):len(r.GetEndorsements())], e)
	return chain[max(0, len(chain)-maxEndorsements):]
}

// admission returns the index of this member's admission; 0: it is a founder. Of all that was
// before, it was told the members.
func (id *identity) admission() uint64 {
	chain := id.get().GetEndorsements()
	if len(chain) == 0 {
		return 0
	}
	return chain[len(chain)-1].GetIndex()
}

// endorsed is the text that an endorsement signs. Lengths delimit its parts.
func endorsed(cluster []byte, newcomer ed25519.PublicKey, index uint64) []byte {
	var text []byte
	for _, part := range [][]byte{[]byte(endorsementContext), cluster, newcomer, binary.BigEndian.AppendUint64(nil, index)} {
		text = binary.BigEndian.AppendUint32(text, uint32(len(part)))
		text = append(text, part...)
	}
	return text
}

// verifyEndorsements returns the members of a chain that leads from a known one to a key; none
// if it does not. A chain whose first admission is in the peer's log is of a member that this
// log knows, or knows to be removed.
func verifyEndorsements(cluster []byte, chain []*wire.Endorsement, key ed25519.PublicKey, applied uint64, known func(ed25519.PublicKey) bool) (by []uint64) {
	if len(chain) > maxEndorsements {
		return nil
	}
	for i, e := range slices.Backward(chain) {
		if len(e.GetKey()) != ed25519.PublicKeySize || !known(e.GetKey()) {
			continue
		}
		if e.GetIndex() <= applied || !verifyLinks(cluster, chain[i:], key) {
			return nil
		}
		for _, e := range chain[i:] {
			by = append(by, wire.FingerprintOf(e.GetKey()))
		}
		return by
	}
	return nil
}

// verifyLinks verifies a chain from its begin on, so that a forged one costs one verification.
func verifyLinks(cluster []byte, chain []*wire.Endorsement, key ed25519.PublicKey) bool {
	last := uint64(0)
	for i, e := range chain {
		next := key
		if i+1 < len(chain) {
			next = chain[i+1].GetKey()
		}
		if len(e.GetKey()) != ed25519.PublicKeySize || e.GetIndex() <= last || !ed25519.Verify(e.GetKey(), endorsed(cluster, next, e.GetIndex()), e.GetSignature()) {
			return false
		}
		last = e.GetIndex()
	}
	return true
}

// endorsed implements transport.Config.Endorsed: a peer that is no member as far as this member
// knows has presented endorsements. If they are valid, or this member's log has its admission
// and not its membership yet, its next connection is accepted.
func (m *Member) endorsed(p transport.Peer, chain []*wire.Endorsement) {
	s := m.status.Load()
	if s == nil || s.Leader != 0 { // the leader vouches
		return
	}
	var by []uint64
	if !slices.ContainsFunc(s.admitted, func(r wire.MemberRecord) bool { return r.ID == p.Member }) {
		by = verifyEndorsements(m.identity.get().GetCluster(), chain, p.Key, max(s.Applied, m.identity.admission()), m.isKeyOfMember)
		if len(by) == 0 {
			return
		}
	}
	select {
	case m.inbound <- func(*core.Core) { m.receiveEndorsed(p, by) }:
	default: // the peer connects again
	}
}

// isKeyOfMember reports whether a key is that of this member, or of one that it knows.
func (m *Member) isKeyOfMember(key ed25519.PublicKey) bool {
	id := wire.FingerprintOf(key)
	if id == m.identity.member {
		return bytes.Equal(key, m.identity.public())
	}
	recorded := m.roster.key(id)
	return m.isMember(id) && (len(recorded) == 0 || bytes.Equal(key, recorded))
}

// receiveEndorsed accepts an endorsed member until this member's log grows; over its connection
// it tells how far that has to be. It runs on the loop's goroutine.
func (m *Member) receiveEndorsed(p transport.Peer, by []uint64) {
	m.reconsiderVouched()
	s := m.core.Status()
	v := &wire.VouchedMember{Member: p.Member, Key: p.Key, Name: p.Name, Advertise: p.Advertise}
	if m.vouch(s, v, voucher{index: s.Applied + 1, by: by}) {
		m.log.Info("members that this member knows have endorsed a member", "member", wire.MemberID(p.Member), "name", p.Name, "addr", p.Advertise)
		m.setMembership(s.Membership)
	}
}
