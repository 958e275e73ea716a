package cluster

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// A member that was down while all other members were replaced knows none of the new ones, so
// none that it believes could vouch for them (vouching.go); as a voter it may be needed for a
// quorum. So the member that admits a newcomer endorses it: it signs the newcomer's key. The
// newcomer presents that in each hello, behind the endorsements of the member that admitted it,
// back to a founder. A member that does not know it follows the chain from a member that it
// knows, and accepts it until its own log has caught up.
//
// The chain reaches a member that is known to any peer, however old its log: the first member
// of the chain that the peer does not know was admitted after the end of the peer's log, by a
// member that was one at the end of that log.
//
// An endorsement does not expire. A peer whose log contains the removal of a member refuses it
// first, and one whose log does not would have believed it anyway.

const (
	endorsementContext = "conclave endorsement 1"
	// maxEndorsements bounds a chain, which is part of each hello. A longer one is shortened
	// by what is oldest: it was known only to members that missed that many admissions, each
	// by the member of the one before.
	maxEndorsements = 16
)

// endorse returns the endorsements of a member that this member has admitted.
func (id *identity) endorse(newcomer ed25519.PublicKey) []*wire.Endorsement {
	r := id.get()
	e := &wire.Endorsement{Key: id.public(), Signature: ed25519.Sign(id.key, endorsed(r.GetCluster(), newcomer))}
	chain := append(r.GetEndorsements()[:len(r.GetEndorsements()):len(r.GetEndorsements())], e)
	return chain[max(0, len(chain)-maxEndorsements):]
}

// endorsed is the text that an endorsement signs. Lengths delimit its parts.
func endorsed(cluster []byte, newcomer ed25519.PublicKey) []byte {
	var text []byte
	for _, part := range [][]byte{[]byte(endorsementContext), cluster, newcomer} {
		text = binary.BigEndian.AppendUint32(text, uint32(len(part)))
		text = append(text, part...)
	}
	return text
}

// verifyEndorsements reports whether a chain leads from a known member to a key.
func verifyEndorsements(cluster []byte, chain []*wire.Endorsement, key ed25519.PublicKey, known func(ed25519.PublicKey) bool) bool {
	if len(chain) > maxEndorsements {
		return false
	}
	for i := len(chain) - 1; i >= 0; i-- {
		if len(chain[i].GetKey()) == ed25519.PublicKeySize && known(chain[i].GetKey()) {
			return verifyLinks(cluster, chain[i:], key)
		}
	}
	return false
}

// verifyLinks verifies a chain from its begin on, so that a forged one costs one verification.
func verifyLinks(cluster []byte, chain []*wire.Endorsement, key ed25519.PublicKey) bool {
	for i, e := range chain {
		next := key
		if i+1 < len(chain) {
			next = chain[i+1].GetKey()
		}
		if len(e.GetKey()) != ed25519.PublicKeySize || !ed25519.Verify(e.GetKey(), endorsed(cluster, next), e.GetSignature()) {
			return false
		}
	}
	return true
}

// endorsed implements transport.Config.Endorsed: a peer that is no member as far as this member
// knows has presented endorsements. If they are valid, its next connection is accepted.
func (m *Member) endorsed(p transport.Peer, chain []*wire.Endorsement) {
	if !verifyEndorsements(m.identity.get().GetCluster(), chain, p.Key, m.isKeyOfMember) {
		return
	}
	select {
	case m.inbound <- func(*core.Core) { m.receiveEndorsed(p) }:
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
func (m *Member) receiveEndorsed(p transport.Peer) {
	s := m.core.Status()
	v := &wire.VouchedMember{Member: p.Member, Key: p.Key, Name: p.Name, Advertise: p.Advertise}
	if m.vouch(s, v) {
		m.log.Info("members that this member knows have endorsed a member", "member", wire.MemberID(p.Member), "name", p.Name, "addr", p.Advertise)
		m.vouched.index = max(m.vouched.index, s.Applied+1)
		m.setMembership(s.Membership)
	}
}
