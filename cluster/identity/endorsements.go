package identity

import (
	"crypto/ed25519"
	"encoding/binary"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// A member that was down while all other members were replaced knows none of the new ones, so
// none that it trusts could vouch for them (cluster/provisional); as a voter it may be needed for a
// quorum. So the member that admits a newcomer endorses it: it signs the newcomer's key and the
// index of the admission in the log. The newcomer presents that in each hello, after the
// endorsements of the member that admitted it, back to a founder. A member that does not know it
// follows the chain from a member that it knows, and accepts it until its own log has caught up.
//
// Each chain contains a member that the peer knows, if the peer's log ends before the newcomer's admission. Take
// the first member of the chain that the peer does not know: it was admitted after the last entry of the
// peer's log, so the member that admitted it belonged to the group at that entry.
//
// An endorsement does not expire. A member that was removed can use one, for itself and for
// others, only against a peer whose log ends before its own admission; and only until that log
// has its removal, when the peer drops it with all for which it has vouched.

const (
	endorsementContext = "conclave endorsement 1"
	// MaxEndorsements bounds a chain, which is part of each hello. A longer one loses its oldest endorsements:
	// they serve only peers that have missed that many admissions, each by the member of the one before.
	MaxEndorsements = 16
)

// Endorse returns the endorsements of a member that was admitted at an index.
func (id *Identity) Endorse(newcomer ed25519.PublicKey, index uint64) []*wire.Endorsement {
	r := id.Get()
	e := &wire.Endorsement{Key: id.Public(), Signature: ed25519.Sign(id.Key, endorsed(r.GetCluster(), newcomer, index)), Index: index}
	chain := append(r.GetEndorsements()[:len(r.GetEndorsements()):len(r.GetEndorsements())], e)
	return chain[max(0, len(chain)-MaxEndorsements):]
}

// Admission returns the index of this member's admission; 0: it is a founder. The members at that index were part of
// the admission.
func (id *Identity) Admission() uint64 {
	chain := id.Get().GetEndorsements()
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

// VerifyEndorsements returns the members of a chain that leads from a known one to a key; none
// if it does not. A chain whose first admission is in the peer's log is of a member that this
// log knows, or knows to be removed.
func VerifyEndorsements(cluster []byte, chain []*wire.Endorsement, key ed25519.PublicKey, applied uint64, known func(ed25519.PublicKey) bool) (by []uint64) {
	if len(chain) > MaxEndorsements {
		return nil
	}
	for i, e := range slices.Backward(chain) {
		if len(e.GetKey()) != ed25519.PublicKeySize || !known(e.GetKey()) {
			continue
		}
		if e.GetIndex() <= applied || !VerifyLinks(cluster, chain[i:], key) {
			return nil
		}
		for _, e := range chain[i:] {
			by = append(by, wire.FingerprintOf(e.GetKey()))
		}
		return by
	}
	return nil
}

// VerifyLinks verifies a chain from its beginning, so that a forged one costs one verification.
func VerifyLinks(cluster []byte, chain []*wire.Endorsement, key ed25519.PublicKey) bool {
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
