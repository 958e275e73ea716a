package conclave

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/backup"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/wire"
)

// What a Client has a member do.

// Status returns the view of the member that the client is connected to. It blocks until a
// member is connected and has answered, or ctx is done. ErrUnavailable with ctx's error;
// ErrClosed.
func (c *Client) Status(ctx context.Context) (Status, error) {
	s, err := c.status(ctx)
	return s, fault("status", "", err)
}

func (c *Client) status(ctx context.Context) (s Status, err error) {
	answer, err := c.ask(ctx, kindStatus, "", true)
	if err == nil {
		err = json.Unmarshal(answer, &s)
	}
	return s, err
}

func (c *Client) transferLeadership(ctx context.Context, to MemberID) error {
	if c.cfg.ReadOnly {
		return errReadOnly
	}
	_, err := c.ask(ctx, kindTransfer, to.String(), false)
	return err
}

func (c *Client) removeMember(ctx context.Context, id MemberID) error {
	if c.cfg.ReadOnly {
		return errReadOnly
	}
	_, err := c.ask(ctx, kindRemove, id.String(), false)
	return err
}

func (c *Client) backUp(ctx context.Context, w io.Writer) error {
	var written backup.Copied
	err := c.remote.Stream(ctx, kindBackup, func(r io.Reader) (err error) {
		written, err = backup.Copy(w, r)
		return err
	})
	switch {
	case err == nil, written.Whole && written.Confirmed:
		return nil // whatever has ended the connection behind it
	case written.Whole:
		return cluster.ErrUnconfirmed
	case ctx.Err() != nil:
		err = contextError(ctx)
		if why := c.remote.Unreachable(); why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
		return incompleteError{err}
	}
	var refused *remote.RequestError
	if !errors.As(err, &refused) {
		return &replica.IncompleteError{Cause: err}
	}
	if !written.Begun && refused.Failure == wire.Failure_FAILURE_BUSY {
		return err
	}
	// What the member reports of itself, as its shutdown, is no error of this client.
	return incompleteError{errors.New(refused.Text)}
}

func (c *Client) ask(ctx context.Context, kind, body string, repeat bool) ([]byte, error) {
	if err := cmp.Or(c.client.Usable(), contextError(ctx)); err != nil {
		return nil, err
	}
	answer, err := c.remote.Ask(ctx, &wire.Request{Kind: kind, Body: []byte(body)}, repeat)
	return answer, c.interrupted(ctx, err, repeat)
}

// interrupted adds to an error why ctx is done. harmless says that the request has no effect.
func (c *Client) interrupted(ctx context.Context, err error, harmless bool) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if !harmless && !errors.Is(err, remote.ErrNotSent) {
		return fmt.Errorf("%w: %w", ErrUnknown, contextError(ctx))
	}
	if why := c.remote.Unreachable(); why != "" {
		return fmt.Errorf("%w: %w: %s", ErrUnavailable, contextError(ctx), why)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, contextError(ctx))
}
