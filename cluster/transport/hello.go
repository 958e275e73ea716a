package transport

import (
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Each side starts with the magic and one frame that holds a Hello.
const (
	magic    = "conclave"
	maxHello = 4 << 10
)

// hello is a wire.Hello with well-formed fields.
type hello struct {
	Identity
	kind    wire.Kind
	to      uint64
	refusal string
}

func writeHello(w io.Writer, id Identity, kind wire.Kind, to uint64, refusal string) error {
	m := &wire.Hello{
		MinProtocol: wire.ProtocolMin,
		MaxProtocol: wire.ProtocolMax,
		Group:       id.Group,
		Member:      id.Member,
		Incarnation: id.Incarnation[:],
		Boot:        id.Boot,
		Kind:        kind,
		Advertise:   id.Advertise,
		Name:        id.Name,
		Refusal:     refusal,
		To:          to,
	}
	if !id.Cluster.IsZero() {
		m.Cluster = id.Cluster[:]
	}
	buf, err := appendMessage([]byte(magic), m)
	if err != nil {
		return err
	}
	_, err = w.Write(buf)
	return err
}

// readHello reads exactly one hello and not a byte more: a raw stream may
// follow. A *RefusedError means that the peer uses conclave's protocol, but
// sent a hello that this version cannot accept.
func readHello(r io.Reader) (*hello, error) {
	var m [len(magic)]byte
	if _, err := io.ReadFull(r, m[:]); err != nil {
		return nil, err
	}
	if strings.HasPrefix(string(m[:]), tlsClientHello) {
		return nil, ErrTLSMismatch
	}
	if string(m[:]) != magic {
		return nil, ErrNotConclave
	}
	body, err := readFrame(r, maxHello, nil)
	if err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	return parseHello(body)
}

func parseHello(body []byte) (*hello, error) {
	var m wire.Hello
	if err := proto.Unmarshal(body, &m); err != nil {
		return nil, &RefusedError{Reason: ReasonMalformed, Detail: err.Error()}
	}
	if m.GetRefusal() != "" { // of any protocol version, so nothing else is checked
		return &hello{refusal: m.GetRefusal(), Identity: Identity{Member: m.GetMember()}}, nil
	}
	if m.GetMinProtocol() > wire.ProtocolMax || m.GetMaxProtocol() < wire.ProtocolMin {
		return nil, &RefusedError{Member: m.GetMember(), Reason: ReasonProtocol, Detail: fmt.Sprintf(
			"one member supports versions %d to %d, the other %d to %d: upgrade the older one",
			m.GetMinProtocol(), m.GetMaxProtocol(), wire.ProtocolMin, wire.ProtocolMax)}
	}
	h := &hello{kind: m.GetKind(), to: m.GetTo(), Identity: Identity{
		Group: m.GetGroup(), Member: m.GetMember(), Boot: m.GetBoot(), Name: m.GetName(), Advertise: m.GetAdvertise(),
	}}
	var ok bool
	if h.Incarnation, ok = wire.IDFrom(m.GetIncarnation()); !ok || h.Incarnation.IsZero() || h.Member == 0 {
		return nil, &RefusedError{Member: h.Member, Reason: ReasonMalformed, Detail: "a hello needs a member and an incarnation"}
	}
	if h.Cluster, ok = wire.IDFrom(m.GetCluster()); !ok && len(m.GetCluster()) != 0 {
		return nil, &RefusedError{Member: h.Member, Reason: ReasonMalformed, Detail: fmt.Sprintf(
			"invalid cluster ID: want 16 bytes, got %d", len(m.GetCluster()))}
	}
	return h, nil
}
