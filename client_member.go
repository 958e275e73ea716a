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
	answer, err := c.ask(ctx, c.remote, request{kind: kindStatus, repeat: true, harmless: true})
	if err == nil {
		err = json.Unmarshal(answer, &s)
	}
	return s, err
}

func (c *Client) transferLeadership(ctx context.Context, to MemberID) error {
	return c.transfer(ctx, c.remote, to)
}

// transfer transfers the leadership of the group that the connection is for.
func (c *Client) transfer(ctx context.Context, r *remote.Group, to MemberID) error {
	_, err := c.ask(ctx, r, request{kind: kindTransfer, body: []byte(to.String())})
	return err
}

func (c *Client) removeMember(ctx context.Context, id MemberID) error {
	_, err := c.ask(ctx, c.remote, request{kind: kindRemove, body: []byte(id.String())})
	return err
}

func (c *Client) backUp(ctx context.Context, w io.Writer) error { return backUpFrom(ctx, c.remote, w) }

// backUpFrom has the member write a backup that a connection is to, of the group that it is for; of all groups if that is the default one.
func backUpFrom(ctx context.Context, from *remote.Group, w io.Writer) error {
	var written backup.Copied
	err := from.Stream(ctx, kindBackup, func(r io.Reader) (err error) {
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
		if why := from.Unreachable(); why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
		return incompleteError{err}
	}
	var refused *remote.RequestError
	if !errors.As(err, &refused) {
		return &replica.IncompleteError{Cause: err}
	}
	if f := refused.Failure; !written.Begun && (f == wire.Failure_FAILURE_BUSY || f == wire.Failure_FAILURE_NO_GROUP) {
		return err
	}
	// What the member reports of itself, as its shutdown, is no error of this client.
	return incompleteError{errors.New(refused.Text)}
}

// request is what a member is asked for.
type request struct {
	kind     string
	body     []byte
	repeat   bool // another member is asked if the connection is lost
	harmless bool // it has no effect
}

// ask has the member answer that a connection is to.
func (c *Client) ask(ctx context.Context, r *remote.Group, q request) ([]byte, error) {
	if c.cfg.ReadOnly && !q.harmless {
		return nil, errReadOnly
	}
	if err := cmp.Or(c.client.Usable(), contextError(ctx)); err != nil {
		return nil, err
	}
	answer, err := r.Ask(ctx, &wire.Request{Kind: q.kind, Body: q.body}, q.repeat)
	return answer, interrupted(ctx, r, err, q.harmless)
}

// interrupted adds to an error why ctx is done. harmless says that the request has no effect.
func interrupted(ctx context.Context, r *remote.Group, err error, harmless bool) error {
	sent := !harmless && !errors.Is(err, remote.ErrNotSent)
	var repeated *remote.RepeatedError
	switch {
	case !harmless && errors.As(err, &repeated) && !errors.Is(convert(err), ErrGroupNotFound): // what is deleted stays so
		return fmt.Errorf("%w: the connection to a member was lost that may still do it; another one answers: %s", ErrUnknown, repeated.Last.Text)
	case err != nil && sent && errors.Is(err, remote.ErrClosed):
		return fmt.Errorf("%w: %w", ErrUnknown, clientClosed{})
	case err == nil, ctx.Err() == nil:
		return err
	case sent:
		return fmt.Errorf("%w: %w", ErrUnknown, contextError(ctx))
	}
	if why := r.Unreachable(); why != "" {
		return fmt.Errorf("%w: %w: %s", ErrUnavailable, contextError(ctx), why)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, contextError(ctx))
}
