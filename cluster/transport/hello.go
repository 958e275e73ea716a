package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Each side opens with the magic and one frame that holds a Hello.
const (
	magic    = "conclave"
	maxHello = 4 << 10
)

// hello is a wire.Hello whose fields have been checked for form.
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
// follow. A *RefusedError means that conclave speaks, but not so that this
// version understands it.
func readHello(r io.Reader) (*hello, error) {
	var m [len(magic)]byte
	if _, err := io.ReadFull(r, m[:]); err != nil {
		return nil, err
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
	if m.GetRefusal() != "" { // its other fields may be those of a version not known here
		return &hello{refusal: m.GetRefusal()}, nil
	}
	if m.GetMinProtocol() > wire.ProtocolMax || m.GetMaxProtocol() < wire.ProtocolMin {
		return nil, &RefusedError{Reason: ReasonProtocol, Detail: fmt.Sprintf(
			"one member speaks versions %d to %d, the other %d to %d: upgrade the older one",
			m.GetMinProtocol(), m.GetMaxProtocol(), wire.ProtocolMin, wire.ProtocolMax)}
	}
	h := &hello{kind: m.GetKind(), to: m.GetTo(), Identity: Identity{
		Group: m.GetGroup(), Member: m.GetMember(), Boot: m.GetBoot(), Name: m.GetName(), Advertise: m.GetAdvertise(),
	}}
	var ok bool
	if h.Incarnation, ok = wire.IDFrom(m.GetIncarnation()); !ok || h.Incarnation.IsZero() || h.Member == 0 {
		return nil, &RefusedError{Reason: ReasonMalformed, Detail: "a hello needs a member and an incarnation"}
	}
	if h.Cluster, ok = wire.IDFrom(m.GetCluster()); !ok && len(m.GetCluster()) != 0 {
		return nil, &RefusedError{Reason: ReasonMalformed, Detail: "a cluster ID has 16 bytes"}
	}
	return h, nil
}

// connect dials addr and introduces this member. The connection is returned
// without deadlines; ctx bounds only the way there.
func (t *Transport) connect(ctx context.Context, addr string, kind wire.Kind, to uint64) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timing.Dial)
	defer cancel()
	c, err := t.dialRaw(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // ends the exchange below
	err = t.introduce(c, addr, kind, to)
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		_ = c.Close() // the reason is err
		return nil, err
	}
	return c, nil
}

// introduce is the dialer's half of the handshake.
func (t *Transport) introduce(c *conn, addr string, kind wire.Kind, to uint64) error {
	id := t.identity()
	if err := writeHello(c, id, kind, to, ""); err != nil {
		return err
	}
	h, err := readHello(c)
	var refused *RefusedError
	if errors.As(err, &refused) {
		refused.Addr, refused.Here = addr, true
		return refused
	}
	if err != nil {
		return fmt.Errorf("transport: no hello from %s: %w", addr, err)
	}
	if h.refusal != "" {
		return parseRefusal(addr, h.refusal)
	}
	if to != 0 && h.Member != to {
		return &RefusedError{Addr: addr, Here: true, Reason: ReasonMember, Detail: fmt.Sprintf("member %x was expected, %x answered", to, h.Member)}
	}
	if refused := t.judge(&id, h, kind, to != 0); refused != nil {
		refused.Addr, refused.Here = addr, true
		return refused
	}
	return nil
}

// greet is the listener's half of the handshake. It takes a slot for the
// connection, which closing gives back.
func (t *Transport) greet(c *conn) (*hello, error) {
	if err := c.SetDeadline(time.Now().Add(t.cfg.Timing.Hello)); err != nil {
		return nil, err
	}
	if t.tls != nil {
		c.Conn = tls.Server(c.raw, t.tls.server)
	}
	h, err := readHello(c)
	var refused *RefusedError
	if err != nil && !errors.As(err, &refused) {
		return nil, err // not a member: owed no answer
	}
	id := t.identity()
	if refused == nil {
		refused = t.receive(c, &id, h)
	}
	if refused != nil {
		refused.Addr, refused.Here = c.RemoteAddr().String(), true
		// The refusal is what counts, whether or not it arrives.
		_ = writeHello(c, id, wire.Kind_KIND_UNSPECIFIED, 0, refused.text())
		return nil, refused
	}
	if err := writeHello(c, id, h.kind, h.Member, ""); err != nil {
		return nil, err
	}
	return h, c.SetDeadline(time.Time{})
}
