package transport

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/conclave-go/conclave/cluster/transport/slots"
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

// handshaker makes the handshake of each connection, on the goroutine that dials it or has accepted it: it decides who is
// at the other end, and whether the connection is accepted. It may be used on any goroutine; what is shared has mutexes
// of its own.
type handshaker struct {
	cfg        *Config // with defaults
	tls        *tlsPair
	network    network
	members    *peers
	identity   func() Identity                  // what this member's hello contains now
	track      func(raw net.Conn) (*conn, bool) // has the transport close the connection at its end
	limits     *slots.Members
	clients    *slots.Clients
	handshakes *slots.Slots // inbound connections that have proven nothing yet
	strangers  *slots.Slots // those of proven processes that are no members
	boots      *bootCounters
	processes  *processes
	failures   *failureLog
	answered   answered
}

// connect dials a target and runs the dialer's half of the handshake. ctx and
// Timing.Dial bound connect only: the connection is returned without deadlines.
// The error is a *RefusedError or a *ConnectError.
func (n *handshaker) connect(ctx context.Context, to Target, kind wire.Kind) (*conn, error) {
	c, err := n.dialAndGreet(ctx, to, kind)
	if err != nil {
		n.failures.outbound(ctx, to, err)
		return nil, err
	}
	return c, nil
}

func (n *handshaker) dialAndGreet(ctx context.Context, to Target, kind wire.Kind) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timing.Dial)
	defer cancel()
	c, err := n.network.dial(ctx, to, n.track)
	if err != nil {
		return nil, &ConnectError{Member: to.Member, Addr: to.Addr, Host: to.Host, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // unblocks greet
	err = n.greet(c, to, kind)
	if !stop() {
		err = withCause(ctx, err)
	}
	if err == nil {
		n.answered.note(to.Addr)
		return c, nil
	}
	_ = c.Close() // err is the error to report
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		return nil, refused
	}
	return nil, &ConnectError{Member: to.Member, Addr: to.Addr, Host: to.Host, Handshake: true, Answered: n.answered.has(to.Addr), Err: err}
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
func (n *handshaker) greet(c *conn, to Target, kind wire.Kind) error {
	if err := handshakeTLS(c, n.cfg.Calls); err != nil {
		return err
	}
	id := n.identity()
	own, err := newHello(id, n.publicKey(), kind, to.Member, n.durable(), n.endorsements())
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
	if err := writeProof(c, n.cfg.Key, x, dialerProof, ""); err != nil {
		return err
	}
	verdict, err := readProof(c, h.key, x, listenerVerdict)
	if err != nil {
		return err
	}
	misdirected := to.check(h, kind)
	if misdirected != nil {
		n.learnAddress(c, &id, h, kind)
	}
	switch refused = misdirected; {
	case verdict != "":
		return n.refusedBy(h, parseRefusal(h.Member, to.Addr, verdict))
	case refused == nil:
		refused = n.admitHello(c, &id, h, kind)
	}
	if refused == nil {
		return writeProof(c, n.cfg.Key, x, dialerVerdict, "")
	}
	refused.Addr, refused.Here, refused.Member, refused.Name = to.Addr, true, h.Member, h.Name
	_ = writeProof(c, n.cfg.Key, x, dialerVerdict, refused.text()) // best effort: refused is the error to report
	return refused
}

// learnAddress reports the address of a proven hello that the dialer did not expect at the
// address dialed. Members that have all moved would not find each other otherwise.
func (n *handshaker) learnAddress(c *conn, id *Identity, h *hello, kind wire.Kind) {
	if n.cfg.Moved != nil && kind != wire.Kind_FORM && n.checkHello(c, id, h, kind) == nil {
		n.cfg.Moved(h.Member, h.Advertise, h.Name)
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
func (n *handshaker) admitHello(c *conn, id *Identity, h *hello, kind wire.Kind) *RefusedError {
	if refused := n.checkHello(c, id, h, kind); refused != nil {
		return refused
	}
	return n.acceptHello(c, id, h, kind)
}

// acceptHello has the effects of an accepted, proven hello.
func (n *handshaker) acceptHello(c *conn, id *Identity, h *hello, kind wire.Kind) *RefusedError {
	c.from = h
	if kind == wire.Kind_CLIENT || id.Cluster.IsZero() || h.Cluster != id.Cluster || !n.members.isMember(h.Member) {
		return nil
	}
	n.members.noteHost(h.Member, c.RemoteAddr())
	if kind == wire.Kind_PEER {
		leave, refused := n.processes.enter(&h.Identity)
		if refused != nil {
			return refused
		}
		c.afterClose(leave)
	}
	return n.boots.record(&h.Identity, n.isRegistered(&h.Identity))
}

// refusedBy has the effects of a refusal by a proven peer, which it returns. That of a
// peer that is no member is an error like any other.
func (n *handshaker) refusedBy(h *hello, refused *RefusedError) *RefusedError {
	if n.cfg.OnRefused != nil && n.members.isMember(h.Member) {
		n.cfg.OnRefused(h.Member, refused)
	}
	refused.Name = h.Name
	return refused
}

// answer is the listener's half of the handshake. It reserves a place for the
// connection, which closing it releases. The error is a *RefusedError or a
// *ConnectError.
func (n *handshaker) answer(c *conn) (*hello, error) {
	failed := func(err error) error {
		return &ConnectError{Addr: c.RemoteAddr().String(), Inbound: true, Handshake: true, Err: err}
	}
	if err := c.SetDeadline(time.Now().Add(n.cfg.Timing.Hello)); err != nil {
		return nil, failed(err)
	}
	// The deadline does not end what waits for a function of the application.
	limit := time.AfterFunc(n.cfg.Timing.Hello+handshakeGrace, func() { _ = c.Close() })
	defer limit.Stop()
	h, err := n.decide(c)
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

// answerIn is answer in a place, which ends with it, however it ends: it asks the application. A connection whose place was taken is
// about to be closed, so it must not be served.
func (n *handshaker) answerIn(c *conn, place *slots.Slot) (h *hello, err error) {
	defer func() {
		if had := n.handshakes.End(place); !had && err == nil {
			h, err = nil, &ConnectError{Addr: c.RemoteAddr().String(), Inbound: true, Handshake: true, Err: net.ErrClosed}
		}
	}()
	return n.answer(c)
}

func (n *handshaker) decide(c *conn) (*hello, error) {
	body, err := n.readInbound(c)
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
	id := n.identity()
	h, malformed := parseHello(body)
	kind, to := wire.Kind_KIND_UNSPECIFIED, uint64(0)
	if h != nil {
		kind, to = h.kind, h.Member
	}
	own, err := n.answeringHello(id, kind, to)
	if err != nil {
		return nil, err
	}
	if kind == wire.Kind_CLIENT {
		n.handshakes.Yield(c.place)
	}
	if err := writeHello(c, own); err != nil {
		return nil, err
	}
	x := &transcript{channel: channel, dialer: body, listener: own}
	if malformed != nil {
		// There is no key to verify the dialer's proof with. Unread, it could reset the
		// connection and lose the answer.
		_, _ = readFrame(c, maxProof, nil)
		return nil, n.refuse(c, x, malformed)
	}
	if _, err := readProof(c, h.key, x, dialerProof); err != nil {
		return nil, err
	}
	if refused := n.checkInbound(c, &id, h); refused != nil {
		refused.Member, refused.Name = h.Member, h.Name
		return nil, n.refuse(c, x, refused)
	}
	if err := writeProof(c, n.cfg.Key, x, listenerVerdict, ""); err != nil {
		return nil, err
	}
	return h, n.awaitVerdict(c, x, &id, h)
}

// answeringHello returns the listener's hello. That to a client contains nothing about the
// log and the other members.
func (n *handshaker) answeringHello(id Identity, kind wire.Kind, to uint64) ([]byte, error) {
	if kind == wire.Kind_CLIENT {
		return newHello(id, n.publicKey(), kind, to, Durable{}, nil)
	}
	return newHello(id, n.publicKey(), kind, to, n.durable(), n.endorsements())
}

// awaitVerdict reads the dialer's decision.
func (n *handshaker) awaitVerdict(c *conn, x *transcript, id *Identity, h *hello) error {
	text, err := readProof(c, h.key, x, dialerVerdict)
	if err != nil {
		return err
	}
	if text != "" {
		refused := parseRefusal(h.Member, "", text)
		refused.Client = h.kind == wire.Kind_CLIENT
		return n.refusedBy(h, refused)
	}
	if refused := n.acceptHello(c, id, h, h.kind); refused != nil {
		refused.Here, refused.Member, refused.Name = true, h.Member, h.Name
		return refused // another connection has changed what checkInbound saw
	}
	return nil
}

// refuse sends a refusal and returns it.
func (n *handshaker) refuse(c *conn, x *transcript, refused *RefusedError) *RefusedError {
	refused.Here = true
	// Best effort: the refusal is the error to report.
	_ = writeProof(c, n.cfg.Key, x, listenerVerdict, refused.text())
	return refused
}

func (n *handshaker) readInbound(c *conn) ([]byte, error) {
	if n.tls != nil {
		c.Conn = n.tls.accept(c.raw)
	}
	if err := handshakeTLS(c, n.cfg.Calls); err != nil {
		return nil, err
	}
	return readHello(c)
}

func (n *handshaker) publicKey() ed25519.PublicKey {
	return n.cfg.Key.Public().(ed25519.PublicKey) // always of that type
}

// endorsements returns those that this member's hello presents.
func (n *handshaker) endorsements() []*wire.Endorsement {
	if n.cfg.Endorsements == nil {
		return nil
	}
	return n.cfg.Endorsements()
}

// durable returns what this member's hello reports as durable now.
func (n *handshaker) durable() (d Durable) {
	if n.cfg.Durable != nil {
		d = n.cfg.Durable()
	}
	return d
}
