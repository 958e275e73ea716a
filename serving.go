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

	kindGroups      = "list groups"  // answered by []GroupInfo
	kindCreateGroup = "create group" // its name; answered by its number
	kindDeleteGroup = "delete group" // deleteBody
)

// deleteBody is the body of a kindDeleteGroup: by number, so that it can be repeated.
type deleteBody struct {
	Number uint32
	Force  bool
}

// served is a group as this node serves it to clients.
type served struct {
	node  *Node
	group *Group
}

// clientHandlers returns what requests of clients of a group mean; of returns nil when that is deleted.
func (n *Node) clientHandlers(of func() *Group) clients.Handlers {
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
		Free: func(m cluster.Machine) int { return m.(*machine.Machine).FreeClients() },
		Serve: func(ctx context.Context, r *wire.Request, answer clients.Answer) error {
			g := of()
			if g == nil {
				return noGroup()
			}
			return served{n, g}.serve(ctx, r, answer)
		},
		Failure: failureOf,
	}
}

// serve answers a request of a client. A client that only reads may be faster than the rest of the start.
func (s served) serve(ctx context.Context, r *wire.Request, answer clients.Answer) error {
	n := s.node
	select {
	case <-n.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch r.GetKind() {
	case remote.KindWatch:
		return s.watch(ctx, r, answer)
	case remote.KindObserve:
		return s.observe(ctx, r, answer)
	case remote.KindShards:
		return serveShards(ctx, s.group.client, r, answer)
	case kindStatus:
		return json.NewEncoder(answer).Encode(n.Status())
	case kindHealth:
		return json.NewEncoder(answer).Encode(n.Health())
	case kindBackup:
		return s.backUp(ctx, r, answer)
	case remote.KindCredit:
		return n.giveCredit(r, answer)
	case kindTransfer, kindRemove:
		return s.changeMember(ctx, r)
	case kindGroups, kindCreateGroup, kindDeleteGroup:
		return n.serveGroups(ctx, r, answer)
	}
	return s.query(ctx, r, answer)
}

// changeMember transfers the leadership to a member, or removes it.
func (s served) changeMember(ctx context.Context, r *wire.Request) error {
	var id MemberID
	if err := id.UnmarshalText(r.GetBody()); err != nil {
		return err
	}
	switch {
	case r.GetKind() == kindTransfer:
		return s.group.TransferLeadership(ctx, id)
	case id == s.node.id:
		return fmt.Errorf("%w: it is the member that the client is connected to: connect to another one, or call Leave there", ErrInvalid)
	}
	return s.group.RemoveMember(ctx, id)
}

// serveGroups answers a request about the groups themselves.
func (n *Node) serveGroups(ctx context.Context, r *wire.Request, answer clients.Answer) error {
	switch r.GetKind() {
	case kindCreateGroup:
		f, err := n.groups.create(ctx, string(r.GetBody()))
		if err != nil {
			return err
		}
		return json.NewEncoder(answer).Encode(n.groups.numberOf(f))
	case kindDeleteGroup:
		var body deleteBody
		if err := json.Unmarshal(r.GetBody(), &body); err != nil {
			return fmt.Errorf("%w request: %w", ErrInvalid, err)
		}
		return n.groups.delete(ctx, func(v machine.GroupView) bool { return v.Number == body.Number }, body.Force)
	}
	all := []GroupInfo{}
	for info, err := range n.Groups(ctx) {
		if err != nil {
			return err
		}
		all = append(all, info)
	}
	return json.NewEncoder(answer).Encode(all)
}

// query answers a query of the group's state.
func (s served) query(ctx context.Context, r *wire.Request, answer clients.Answer) error {
	q, err := machine.DecodeQuery(r.GetKind(), r.GetBody())
	if err != nil {
		return fmt.Errorf("%w request: %w", ErrInvalid, err)
	}
	a, err := client.Ask[any](ctx, s.group.client, machine.ForClient(q), client.QueryOptions{Stale: r.GetStale()})
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

func (s served) watch(ctx context.Context, r *wire.Request, answer io.Writer) error {
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
		err = s.group.client.FollowKeysPassing(ctx, watch.Prefix, watch.After, change, func(index uint64) bool {
			failed = changes.Encode(remote.Watched{Progress: index})
			return failed == nil
		})
	} else {
		err = s.group.client.FollowKeys(ctx, watch.Prefix, watch.After, change)
	}
	if failed != nil {
		return failed
	}
	return err
}

func (s served) observe(ctx context.Context, r *wire.Request, answer io.Writer) error {
	if err := validName(string(r.GetBody())); err != nil {
		return err
	}
	leaders := json.NewEncoder(answer)
	var failed error
	err := s.group.client.Observe(ctx, string(r.GetBody()), func(l *fact.Leader) bool {
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
		{wire.Failure_FAILURE_NO_GROUP, ErrGroupNotFound},
		{wire.Failure_FAILURE_LEVEL, ErrUpgradeRequired},
		{wire.Failure_FAILURE_LOCKED, ErrLocked},
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
	case errors.Is(err, remote.ErrDeleted):
		return ErrGroupNotFound
	}
	return err
}
