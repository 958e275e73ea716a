package transport

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// The handshake, after that of TLS:
//
//	dialer    Hello
//	listener  Hello
//	dialer    Proof
//	listener  Proof with its refusal, or none
//	dialer    Proof with its refusal, or none; unless it was refused
//
// Nothing in a hello has an effect before its proof is verified: until then it is a claim.
// A refusal is part of what its proof signs.

// connect dials a target and runs the dialer's half of the handshake. ctx and
// Timing.Dial bound connect only: the connection is returned without deadlines.
// The error is a *RefusedError or a *ConnectError.
func (t *Transport) connect(ctx context.Context, to Target, kind wire.Kind) (*conn, error) {
	c, err := t.dialAndGreet(ctx, to, kind)
	if err != nil {
		t.failures.outbound(ctx, to, err)
		return nil, err
	}
	return c, nil
}

func (t *Transport) dialAndGreet(ctx context.Context, to Target, kind wire.Kind) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timing.Dial)
	defer cancel()
	c, err := t.network().dial(ctx, to, t.track)
	if err != nil {
		return nil, &ConnectError{Member: to.Member, Addr: to.Addr, Host: to.Host, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // unblocks greet
	err = t.greet(c, to, kind)
	if !stop() {
		err = withCause(ctx, err)
	}
	if err == nil {
		return c, nil
	}
	_ = c.Close() // err is the error to report
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		return nil, refused
	}
	return nil, &ConnectError{Member: to.Member, Addr: to.Addr, Host: to.Host, Handshake: true, Err: err}
}

// withCause adds the reason why ctx is done, if it is, to an error.
func withCause(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case err == nil, errors.Is(err, net.ErrClosed): // since ctx is done
		return cause
	default:
		return fmt.Errorf("%w: %w", cause, err)
	}
}

// greet is the dialer's half of the handshake.
func (t *Transport) greet(c *conn, to Target, kind wire.Kind) error {
	if err := handshakeTLS(c, t.cfg.Calls); err != nil {
		return err
	}
	id := t.identity()
	own, err := newHello(id, t.publicKey(), kind, to.Member, t.durable(), t.endorsements())
	if err != nil {
		return err
	}
	h, x, refused, err := exchangeHellos(c, own)
	switch {
	case err != nil:
		return err
	case refused != nil:
		refused.Addr, refused.Here = to.Addr, true
		return refused
	}
	if err := writeProof(c, t.cfg.Key, x, dialerProof, ""); err != nil {
		return err
	}
	verdict, err := readProof(c, h.key, x, listenerVerdict)
	if err != nil {
		return err
	}
	misdirected := to.check(h, kind)
	if misdirected != nil {
		t.learnAddress(c, &id, h, kind)
	}
	switch refused = misdirected; {
	case verdict != "":
		return t.refusedBy(h, parseRefusal(h.Member, to.Addr, verdict))
	case refused == nil:
		refused = t.admitHello(c, &id, h, kind)
	}
	if refused == nil {
		return writeProof(c, t.cfg.Key, x, dialerVerdict, "")
	}
	refused.Addr, refused.Here, refused.Member = to.Addr, true, h.Member
	_ = writeProof(c, t.cfg.Key, x, dialerVerdict, refused.text()) // best effort: refused is the error to report
	return refused
}

// learnAddress reports the address of a proven hello that the dialer did not expect at the
// address dialed. Members that have all moved would not find each other otherwise.
func (t *Transport) learnAddress(c *conn, id *Identity, h *hello, kind wire.Kind) {
	if t.cfg.Moved != nil && kind != wire.Kind_FORM && t.checkHello(c, id, h, kind) == nil {
		t.cfg.Moved(h.Member, h.Advertise, h.Name)
	}
}

// exchangeHellos is the dialer's exchange.
func exchangeHellos(c *conn, own []byte) (*hello, *transcript, *RefusedError, error) {
	if err := writeHello(c, own); err != nil {
		return nil, nil, nil, err
	}
	body, err := readHello(c)
	if err != nil {
		return nil, nil, nil, err
	}
	channel, err := channelOf(c)
	if err != nil {
		return nil, nil, nil, err
	}
	h, refused := parseHello(body)
	return h, &transcript{channel: channel, dialer: own, listener: body}, refused, nil
}

// admitHello makes the decision of either side about a proven hello, and has its effects
// if the hello is accepted.
func (t *Transport) admitHello(c *conn, id *Identity, h *hello, kind wire.Kind) *RefusedError {
	if refused := t.checkHello(c, id, h, kind); refused != nil {
		return refused
	}
	return t.acceptHello(c, id, h, kind)
}

// acceptHello has the effects of an accepted, proven hello.
func (t *Transport) acceptHello(c *conn, id *Identity, h *hello, kind wire.Kind) *RefusedError {
	c.from = h
	if kind == wire.Kind_CLIENT || id.Cluster.IsZero() || h.Cluster != id.Cluster || !t.isMember(h.Member) {
		return nil
	}
	t.noteHost(h.Member, c.RemoteAddr())
	if kind == wire.Kind_PEER {
		leave, refused := t.processes.enter(h.Member, h.Incarnation)
		if refused != nil {
			return refused
		}
		c.afterClose(leave)
	}
	return t.boots.record(&h.Identity, t.isRegistered(&h.Identity))
}

// refusedBy has the effects of a refusal by a proven peer, which it returns. That of a
// peer that is no member is an error like any other.
func (t *Transport) refusedBy(h *hello, refused *RefusedError) *RefusedError {
	if t.cfg.OnRefused != nil && t.isMember(h.Member) {
		t.cfg.OnRefused(h.Member, refused)
	}
	return refused
}

// answer is the listener's half of the handshake. It reserves a place for the
// connection, which closing it releases. The error is a *RefusedError or a
// *ConnectError.
func (t *Transport) answer(c *conn) (*hello, error) {
	failed := func(err error) error {
		return &ConnectError{Addr: c.RemoteAddr().String(), Inbound: true, Handshake: true, Err: err}
	}
	if err := c.SetDeadline(time.Now().Add(t.cfg.Timing.Hello)); err != nil {
		return nil, failed(err)
	}
	// The deadline does not end what waits for a function of the application.
	limit := time.AfterFunc(t.cfg.Timing.Hello+handshakeGrace, func() { _ = c.Close() })
	defer limit.Stop()
	h, err := t.decide(c)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		refused.Addr = c.RemoteAddr().String()
		return nil, refused
	}
	if err != nil {
		return nil, failed(err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, failed(err)
	}
	return h, nil
}

func (t *Transport) decide(c *conn) (*hello, error) {
	body, err := t.readInbound(c)
	if err != nil {
		if errors.Is(err, ErrTLSMismatch) {
			refuseMismatch(c)
		}
		return nil, err // not a member, which is owed no answer
	}
	channel, err := channelOf(c)
	if err != nil {
		return nil, err
	}
	id := t.identity()
	h, malformed := parseHello(body)
	kind, to := wire.Kind_KIND_UNSPECIFIED, uint64(0)
	if h != nil {
		kind, to = h.kind, h.Member
	}
	own, err := t.answeringHello(id, kind, to)
	if err != nil {
		return nil, err
	}
	if kind == wire.Kind_CLIENT {
		t.handshakes.yield(c.place)
	}
	if err := writeHello(c, own); err != nil {
		return nil, err
	}
	x := &transcript{channel: channel, dialer: body, listener: own}
	if malformed != nil {
		// There is no key to verify the dialer's proof with. Unread, it could reset the
		// connection and lose the answer.
		_, _ = readFrame(c, maxProof, nil)
		return nil, t.refuse(c, x, malformed)
	}
	if _, err := readProof(c, h.key, x, dialerProof); err != nil {
		return nil, err
	}
	if refused := t.checkInbound(c, &id, h); refused != nil {
		refused.Member = h.Member
		return nil, t.refuse(c, x, refused)
	}
	if err := writeProof(c, t.cfg.Key, x, listenerVerdict, ""); err != nil {
		return nil, err
	}
	return h, t.awaitVerdict(c, x, &id, h)
}

// answeringHello returns the listener's hello. That to a client contains nothing about the
// log and the other members.
func (t *Transport) answeringHello(id Identity, kind wire.Kind, to uint64) ([]byte, error) {
	if kind == wire.Kind_CLIENT {
		return newHello(id, t.publicKey(), kind, to, position{}, nil)
	}
	return newHello(id, t.publicKey(), kind, to, t.durable(), t.endorsements())
}

// awaitVerdict reads the dialer's decision.
func (t *Transport) awaitVerdict(c *conn, x *transcript, id *Identity, h *hello) error {
	text, err := readProof(c, h.key, x, dialerVerdict)
	if err != nil {
		return err
	}
	if text != "" {
		refused := parseRefusal(h.Member, "", text)
		refused.Client = h.kind == wire.Kind_CLIENT
		return t.refusedBy(h, refused)
	}
	if refused := t.acceptHello(c, id, h, h.kind); refused != nil {
		refused.Here, refused.Member = true, h.Member
		return refused // another connection has changed what checkInbound saw
	}
	return nil
}

// refuse sends a refusal and returns it.
func (t *Transport) refuse(c *conn, x *transcript, refused *RefusedError) *RefusedError {
	refused.Here = true
	// Best effort: the refusal is the error to report.
	_ = writeProof(c, t.cfg.Key, x, listenerVerdict, refused.text())
	return refused
}

func (t *Transport) readInbound(c *conn) ([]byte, error) {
	if t.tls != nil {
		c.Conn = t.tls.accept(c.raw)
	}
	if err := handshakeTLS(c, t.cfg.Calls); err != nil {
		return nil, err
	}
	return readHello(c)
}

func (t *Transport) publicKey() ed25519.PublicKey {
	return t.cfg.Key.Public().(ed25519.PublicKey) // always of that type
}

// endorsements returns those that this member's hello presents.
func (t *Transport) endorsements() []*wire.Endorsement {
	if t.cfg.Endorsements == nil {
		return nil
	}
	return t.cfg.Endorsements()
}

// durable returns what this member's hello reports as durable now.
func (t *Transport) durable() (p position) {
	if t.cfg.Durable != nil {
		p.term, p.index = t.cfg.Durable()
	}
	return p
}
