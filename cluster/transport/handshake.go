package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// connect dials addr and runs the dialer's half of the handshake. to is the
// member expected there; zero: any. ctx and Timing.Dial bound connect only: the
// connection is returned without deadlines. The error is a *RefusedError or a
// *ConnectError.
func (t *Transport) connect(ctx context.Context, addr string, kind wire.Kind, to uint64) (*conn, error) {
	c, err := t.dialAndGreet(ctx, addr, kind, to)
	if err != nil {
		t.failures.outbound(ctx, to, addr, err)
		return nil, err
	}
	return c, nil
}

func (t *Transport) dialAndGreet(ctx context.Context, addr string, kind wire.Kind, to uint64) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timing.Dial)
	defer cancel()
	c, err := t.dial(ctx, addr)
	if err != nil {
		return nil, &ConnectError{Member: to, Addr: addr, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // unblocks greet
	err = t.greet(c, addr, kind, to)
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
	return nil, &ConnectError{Member: to, Addr: addr, Handshake: true, Err: err}
}

// withCause adds the reason why ctx is done, if it is, to an error.
func withCause(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case err == nil:
		return cause
	default:
		return fmt.Errorf("%w: %w", cause, err)
	}
}

// greet is the dialer's half of the handshake.
func (t *Transport) greet(c *conn, addr string, kind wire.Kind, to uint64) error {
	if err := handshakeTLS(c); err != nil {
		return err
	}
	id := t.identity()
	if err := writeHello(c, id, kind, to, ""); err != nil {
		return err
	}
	h, err := readHello(c)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
	case err != nil:
		return err
	case h.refusal != "":
		return parseRefusal(cmp.Or(h.Member, to), addr, h.refusal)
	case to != 0 && h.Member != to:
		refused = &RefusedError{Reason: ReasonMember, Detail: wrongMember(h.Member, to)}
	default:
		refused = t.checkHello(&id, h, kind, to != 0)
	}
	if refused == nil {
		return nil
	}
	if refused.Addr, refused.Here = addr, true; h != nil {
		refused.Member = h.Member
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
	h, err := t.readInbound(c)
	var refused *RefusedError
	if err != nil && !errors.As(err, &refused) {
		if errors.Is(err, ErrTLSMismatch) {
			refuseMismatch(c)
		}
		return nil, failed(err) // not a member, which is owed no answer
	}
	id := t.identity()
	if refused == nil {
		if refused = t.checkInbound(c, &id, h); refused != nil {
			refused.Member = h.Member
		}
	}
	if refused != nil {
		refused.Addr, refused.Here = c.RemoteAddr().String(), true
		// Best effort: the refusal is the error to report.
		_ = writeHello(c, id, wire.Kind_KIND_UNSPECIFIED, 0, refused.text())
		return nil, refused
	}
	if err := writeHello(c, id, h.kind, h.Member, ""); err != nil {
		return nil, failed(err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, failed(err)
	}
	return h, nil
}

func (t *Transport) readInbound(c *conn) (*hello, error) {
	if t.tls != nil {
		c.Conn = t.tls.accept(c.raw)
	}
	if err := handshakeTLS(c); err != nil {
		return nil, err
	}
	return readHello(c)
}
