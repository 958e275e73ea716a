package conclave

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/clients"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// What this node does for the clients that are connected to it.

// The kinds of requests that need a member, besides those of package remote.
const (
	kindStatus   = "status"
	kindHealth   = "health"
	kindTransfer = "transfer leadership" // the MemberID as text
	kindRemove   = "remove member"       // likewise
	kindBackup   = "backup"
)

func (n *Node) clientsConfig() clients.Handlers {
	return clients.Handlers{
		Registered: func(m cluster.Machine, incarnation wire.ID) bool {
			_, isClient, ok := m.(*machine.Machine).Registration(incarnation)
			return ok && isClient
		},
		SessionOf: func(m cluster.Machine, session wire.ID) (incarnation wire.ID, alive bool) {
			v := machine.Ask[*machine.SessionView](m.(*machine.Machine), machine.SessionQuery{ID: session})
			if v == nil {
				return wire.ID{}, false
			}
			return v.Incarnation, true
		},
		Occupied: func(m cluster.Machine, incarnation wire.ID) bool {
			return m.(*machine.Machine).ClientCounts(incarnation)
		},
		Free:    func(m cluster.Machine) int { return m.(*machine.Machine).FreeClients() },
		Serve:   n.serve,
		Failure: failureOf,
	}
}

// serve answers a request of a client. A client that only reads may be faster than the rest of the start.
func (n *Node) serve(ctx context.Context, r *wire.Request, answer clients.Answer) error {
	select {
	case <-n.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch r.GetKind() {
	case remote.KindWatch:
		return n.serveWatch(ctx, r, answer)
	case remote.KindObserve:
		return n.serveObserve(ctx, r, answer)
	case remote.KindShards:
		return serveShards(ctx, n.client, r, answer)
	case kindStatus:
		return json.NewEncoder(answer).Encode(n.Status())
	case kindHealth:
		return json.NewEncoder(answer).Encode(n.Health())
	case kindBackup:
		return n.serveBackup(ctx, r, answer)
	case remote.KindCredit:
		return n.giveCredit(r, answer)
	case kindTransfer, kindRemove:
		var id MemberID
		if err := id.UnmarshalText(r.GetBody()); err != nil {
			return err
		}
		if r.GetKind() == kindRemove && id == n.id {
			return fmt.Errorf("%w: it is the member that the client is connected to: connect to another one, or call Leave there", ErrInvalid)
		}
		if r.GetKind() == kindRemove {
			return n.RemoveMember(ctx, id)
		}
		return n.TransferLeadership(ctx, id)
	}
	q, err := machine.DecodeQuery(r.GetKind(), r.GetBody())
	if err != nil {
		return fmt.Errorf("%w request: %w", ErrInvalid, err)
	}
	a, err := client.Ask[any](ctx, n.client, machine.ForClient(q), client.QueryOptions{Stale: r.GetStale()})
	if err != nil {
		return err
	}
	answer.Hold(machine.AnswerSize(a))
	for part, err := range machine.EncodeAnswer(a) {
		if err == nil {
			_, err = answer.Write(part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) serveWatch(ctx context.Context, r *wire.Request, answer io.Writer) error {
	var watch remote.WatchBody
	if err := json.Unmarshal(r.GetBody(), &watch); err != nil {
		return fmt.Errorf("%w request: %w", ErrInvalid, err)
	}
	if err := validPrefixes(watch.Prefix); err != nil {
		return err
	}
	changes := json.NewEncoder(answer)
	var failed error
	change := func(c fact.KeyChange) bool {
		failed = changes.Encode(c)
		return failed == nil
	}
	var err error
	if watch.Progress {
		err = n.client.FollowKeysPassing(ctx, watch.Prefix, watch.After, change, func(index uint64) bool {
			failed = changes.Encode(remote.Watched{Progress: index})
			return failed == nil
		})
	} else {
		err = n.client.FollowKeys(ctx, watch.Prefix, watch.After, change)
	}
	if failed != nil {
		return failed
	}
	return err
}

func (n *Node) serveObserve(ctx context.Context, r *wire.Request, answer io.Writer) error {
	if err := validName(string(r.GetBody())); err != nil {
		return err
	}
	leaders := json.NewEncoder(answer)
	var failed error
	err := n.client.Observe(ctx, string(r.GetBody()), func(l *fact.Leader) bool {
		failed = leaders.Encode(remote.Observed{Leader: l})
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

func serveShards(ctx context.Context, c *client.Client, r *wire.Request, answer io.Writer) error {
	if err := validName(string(r.GetBody())); err != nil {
		return err
	}
	updates := json.NewEncoder(answer)
	var failed error
	err := c.FollowShards(ctx, string(r.GetBody()), func(u client.ShardsUpdate) bool {
		failed = updates.Encode(u)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// failures are the errors of which a client learns by a code.
func failures() []struct {
	failure wire.Failure
	err     error
} {
	return []struct {
		failure wire.Failure
		err     error
	}{
		// The more specific ones first.
		{wire.Failure_FAILURE_UNKNOWN, ErrUnknown},
		{wire.Failure_FAILURE_LAST_VOTER, ErrLastVoter},
		{wire.Failure_FAILURE_COMPACTED, ErrCompacted},
		{wire.Failure_FAILURE_CLOSED, ErrClosed},
		{wire.Failure_FAILURE_BUSY, ErrBusy},
		{wire.Failure_FAILURE_UNAVAILABLE, ErrUnavailable},
		{wire.Failure_FAILURE_TOO_LARGE, ErrTooLarge},
		{wire.Failure_FAILURE_INVALID, ErrInvalid},
	}
}

// failureOf describes an error to a client.
func failureOf(err error) (wire.Failure, string) {
	var e *Error
	if errors.As(err, &e) {
		err = e.Err // the client adds the operation
	} else {
		err = convert(err)
	}
	for _, f := range failures() {
		if errors.Is(err, f.err) {
			return f.failure, err.Error()
		}
	}
	return wire.Failure_FAILURE_OTHER, err.Error()
}

// failed is an error that a member has described. Its text begins with that of the sentinel.
type failed struct {
	error
	sentinel error
}

func (f failed) Unwrap() error { return f.sentinel }

// convertRemote turns the errors of the way to a member into those that are documented.
func convertRemote(err error) error {
	var r *remote.RequestError
	switch {
	case errors.As(err, &r):
		for _, f := range failures() {
			if f.failure == wire.Failure_FAILURE_CLOSED && r.Failure == f.failure { // the member is, and not this client
				return fmt.Errorf("%w: the member that was asked is shutting down: ask again", ErrUnavailable)
			}
			if f.failure == r.Failure {
				return failed{err, f.err}
			}
		}
	case errors.Is(err, tickets.ErrBusy), errors.Is(err, remote.ErrTooManyStreams):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case errors.Is(err, remote.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, tickets.ErrUnregistered):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case errors.Is(err, remote.ErrClosed):
		return clientClosed{}
	}
	return err
}
