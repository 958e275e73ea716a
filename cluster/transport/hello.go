package transport

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Each side starts with the magic and one frame that holds a Hello.
const (
	magic    = "conclave"
	maxHello = wire.MaxHello

	// maxIdentity bounds the texts of an Identity, in bytes, so that a hello has room for the rest.
	maxIdentity = 4 << 10
)

// hello is a wire.Hello with well-formed fields. It is a claim until its proof is verified.
type hello struct {
	Identity
	key      ed25519.PublicKey // whose fingerprint is Member
	kind     wire.Kind
	to       uint64
	protocol uint32 // the highest version that both sides support
	durable  Durable
	// endorsements are claims of their own: the proof does not verify their signatures.
	endorsements []*wire.Endorsement
}

// Durable is what of a member's logs is on its disk: the current term of each and the index of its last entry, an upper
// bound of what the member has acknowledged.
type Durable struct {
	Term, Index uint64
	Groups      []*wire.GroupPosition // of the further groups, by number
	Created     uint32                // of a group up to this number that is not there the log was erased: the group is deleted
}

// newHello returns the body of a hello with a fresh nonce.
func newHello(id Identity, key ed25519.PublicKey, kind wire.Kind, to uint64, durable Durable, endorsements []*wire.Endorsement) ([]byte, error) {
	m := &wire.Hello{
		MinProtocol:  wire.ProtocolMin,
		MaxProtocol:  wire.ProtocolMax,
		Group:        id.Group,
		Member:       id.Member,
		Incarnation:  id.Incarnation[:],
		Boot:         id.Boot,
		Kind:         kind,
		Advertise:    id.Advertise,
		Name:         id.Name,
		To:           to,
		Key:          key,
		Nonce:        make([]byte, nonceBytes),
		FeatureLevel: id.FeatureLevel, LeaderPriority: id.LeaderPriority,
		FurtherGroup: id.FurtherGroup,
		DurableTerm:  durable.Term,
		DurableIndex: durable.Index,
		Groups:       durable.Groups, GroupsCreated: durable.Created,
		Endorsements: endorsements,
	}
	rand.Read(m.Nonce) // never fails
	if !id.Cluster.IsZero() {
		m.Cluster = id.Cluster[:]
	}
	return proto.Marshal(m)
}

func writeHello(w io.Writer, body []byte) error {
	_, err := w.Write(appendFrame([]byte(magic), body))
	return err
}

// readHello reads the body of exactly one hello and not a byte more: a raw stream may
// follow the handshake.
func readHello(r io.Reader) ([]byte, error) {
	var m [len(magic)]byte
	if _, err := io.ReadFull(r, m[:]); err != nil {
		return nil, err
	}
	if strings.HasPrefix(string(m[:]), tlsClientHello) || strings.HasPrefix(string(m[:]), tlsAlert) {
		return nil, ErrTLSMismatch
	}
	if string(m[:]) != magic {
		return nil, ErrNotConclave
	}
	body, err := readFrame(r, maxHello, nil)
	if err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	if err := wire.Decode(body, new(wire.Hello)); err != nil {
		return nil, fmt.Errorf("%w: hello: %w", ErrBadFrame, err)
	}
	return body, nil
}

// parseHello returns an error if the peer uses conclave's protocol, but sent a hello that
// this version cannot accept.
func parseHello(body []byte) (*hello, *RefusedError) {
	var m wire.Hello
	if err := wire.Decode(body, &m); err != nil {
		return nil, &RefusedError{Reason: ReasonMalformed, Detail: err.Error()}
	}
	malformed := func(format string, args ...any) (*hello, *RefusedError) {
		return nil, &RefusedError{Reason: ReasonMalformed, Detail: fmt.Sprintf(format, args...)}
	}
	if m.GetMinProtocol() > wire.ProtocolMax || m.GetMaxProtocol() < wire.ProtocolMin {
		return nil, &RefusedError{Reason: ReasonProtocol, Detail: fmt.Sprintf(
			"one member supports versions %d to %d, the other %d to %d: upgrade the older one",
			m.GetMinProtocol(), m.GetMaxProtocol(), wire.ProtocolMin, wire.ProtocolMax)}
	}
	h := &hello{
		Identity: Identity{
			Group: m.GetGroup(), Member: m.GetMember(), Boot: m.GetBoot(), Name: m.GetName(), Advertise: m.GetAdvertise(),
			FeatureLevel: m.GetFeatureLevel(), LeaderPriority: max(-wire.MaxLeaderPriority, min(m.GetLeaderPriority(), wire.MaxLeaderPriority)), FurtherGroup: m.GetFurtherGroup(),
		},
		key: m.GetKey(), kind: m.GetKind(), to: m.GetTo(), protocol: min(m.GetMaxProtocol(), wire.ProtocolMax),
		durable:      Durable{m.GetDurableTerm(), m.GetDurableIndex(), m.GetGroups(), m.GetGroupsCreated()},
		endorsements: m.GetEndorsements(),
	}
	if h.kind == wire.Kind_CLIENT {
		h.durable, h.endorsements = Durable{}, nil // they do not concern a client, of which a member keeps the hello
	}
	switch {
	case len(h.key) != ed25519.PublicKeySize:
		return malformed("invalid key: want %d bytes, got %d", ed25519.PublicKeySize, len(h.key))
	case h.Member != wire.FingerprintOf(h.key):
		return malformed("member %v presents the key of member %v", wire.MemberID(h.Member), wire.MemberID(wire.FingerprintOf(h.key)))
	case len(h.Group)+len(h.Name)+len(h.Advertise) > maxIdentity:
		return malformed("group, name and address of more than %d bytes", maxIdentity)
	case len(m.GetNonce()) != nonceBytes:
		return malformed("invalid nonce: want %d bytes, got %d", nonceBytes, len(m.GetNonce()))
	}
	var ok bool
	if h.Incarnation, ok = wire.IDFrom(m.GetIncarnation()); !ok || h.Incarnation.IsZero() {
		return malformed("a hello needs an incarnation")
	}
	if h.Cluster, ok = wire.IDFrom(m.GetCluster()); !ok && len(m.GetCluster()) != 0 {
		return malformed("invalid cluster ID: want 16 bytes, got %d", len(m.GetCluster()))
	}
	return h, nil
}
