package transport

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

const maxForm = wire.MaxForm

// Form sends a proposal to a target and returns its answer.
// It blocks for at most Timing.Form. The member in the answer, and the candidate that it
// describes as itself, are those that the connection has proven; so they are in the
// requests that Handler.Form receives.
func (t *Transport) Form(ctx context.Context, to Target, req *wire.FormRequest) (*wire.FormReply, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timing.Form)
	defer cancel()
	c, err := t.connect(ctx, to, wire.Kind_FORM)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	reply := new(wire.FormReply)
	err = exchange(c, req, reply)
	if err == nil {
		err = proven(reply.GetCandidate(), c.from)
	}
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", to.Addr, withCause(ctx, err))
	}
	reply.Member = c.from.Member
	return reply, nil
}

// proven checks what a peer states about itself against what its connection has proven.
func proven(stated *wire.GossipMeta, h *hello) error {
	switch {
	case stated == nil:
		return nil
	case stated.GetMember() != h.Member || !h.key.Equal(ed25519.PublicKey(stated.GetKey())):
		return fmt.Errorf("%w: member %v states that it is member %v", ErrUnproven, wire.MemberID(h.Member), wire.MemberID(stated.GetMember()))
	case stated.GetAdvertise() != h.Advertise:
		return fmt.Errorf("%w: member %v advertises %s and states that it advertises %s",
			ErrUnproven, wire.MemberID(h.Member), h.Advertise, stated.GetAdvertise())
	}
	return nil
}

func exchange(c *conn, req, reply proto.Message) error {
	buf, err := appendMessage(nil, req)
	if err != nil {
		return err
	}
	if len(buf) > frameHeader+maxForm {
		return fmt.Errorf("%w: got a proposal of %d bytes, want at most %d", ErrTooLarge, len(buf)-frameHeader, maxForm)
	}
	if _, err := c.Write(buf); err != nil {
		return err
	}
	return readMessage(c, reply)
}

func readMessage(c *conn, m proto.Message) error {
	body, err := readFrame(c, maxForm, nil)
	if err != nil {
		return err
	}
	if err := wire.Decode(body, m); err != nil {
		return fmt.Errorf("%w: %w", ErrBadFrame, err)
	}
	return nil
}

// serveForm answers one proposal.
func (t *Transport) serveForm(c *conn) {
	if c.SetDeadline(time.Now().Add(t.cfg.Timing.Form)) != nil {
		return
	}
	req := new(wire.FormRequest)
	err := readMessage(c, req)
	if err == nil {
		err = proven(req.GetCandidate(), c.from)
	}
	if err != nil {
		t.log().Debug("proposal not received", "addr", c.RemoteAddr(), "error", err)
		return
	}
	buf, err := appendMessage(nil, t.cfg.Handler.Form(req))
	if err == nil {
		_, err = c.Write(buf)
	}
	if err != nil {
		t.log().Info("proposal not answered", "addr", c.RemoteAddr(), "error", err)
	}
}
