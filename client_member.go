package conclave

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/wire"
)

// What a Client has a member do.

// Status returns the view of the member that the client is connected to. It blocks until a
// member is connected and has answered, or ctx is done. ErrUnavailable with ctx's error;
// ErrClosed.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	answer, err := c.ask(ctx, kindStatus, "", true)
	if err == nil {
		err = json.Unmarshal(answer, &s)
	}
	return s, fault("status", "", err)
}

// TransferLeadership is [Node.TransferLeadership], by the member that the client is connected
// to. ErrUnknown if the connection is lost meanwhile.
func (c *Client) TransferLeadership(ctx context.Context, to MemberID) error {
	_, err := c.ask(ctx, kindTransfer, to.String(), false)
	return fault("transfer leadership", successor(to), err)
}

// RemoveMember is [Node.RemoveMember], by the member that the client is connected to. It can
// be repeated after ErrUnknown. ErrInvalid for the member that does it: connect to another
// one, or call Leave there.
func (c *Client) RemoveMember(ctx context.Context, id MemberID) error {
	_, err := c.ask(ctx, kindRemove, id.String(), false)
	return fault("remove member", id.String(), err)
}

// Backup is [Node.Backup], by the member that the client is connected to. If the connection
// is lost meanwhile, w has a part of a backup, which Restore refuses. ErrBusy while 4 clients
// read one from that member.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	err := cmp.Or(c.client.Usable(), client.ContextError(ctx))
	if err == nil {
		err = c.interrupted(ctx, c.group.Copy(ctx, &wire.Request{Kind: kindBackup}, w), true)
	}
	return fault("backup", "", err)
}

func (c *Client) ask(ctx context.Context, kind, body string, repeat bool) ([]byte, error) {
	if err := cmp.Or(c.client.Usable(), client.ContextError(ctx)); err != nil {
		return nil, err
	}
	answer, err := c.group.Ask(ctx, &wire.Request{Kind: kind, Body: []byte(body)}, repeat)
	return answer, c.interrupted(ctx, err, repeat)
}

// interrupted adds to an error why ctx is done. harmless says that the request has no effect.
func (c *Client) interrupted(ctx context.Context, err error, harmless bool) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if why := c.group.Unreachable(); why != "" {
		return fmt.Errorf("%w: %w: %s", ErrUnavailable, client.ContextError(ctx), why)
	}
	if harmless {
		return fmt.Errorf("%w: %w", ErrUnavailable, client.ContextError(ctx))
	}
	return fmt.Errorf("%w: %w", ErrUnknown, client.ContextError(ctx))
}
