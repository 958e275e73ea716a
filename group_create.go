package conclave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// create is Node.CreateGroup.
func (g *nodeGroups) create(ctx context.Context, name string, cfg GroupConfig) (*Group, error) {
	n := g.node
	switch {
	case validName(name) != nil:
		return nil, validName(name)
	case cfg != GroupConfig{}:
		return nil, fmt.Errorf("%w GroupConfig: a further group has the members and voters of the default group: want the zero value", ErrInvalid)
	case name == n.cfg.Group:
		return n.Group, n.client.Usable()
	}
	if err := g.mayBegin(ctx); err != nil {
		return nil, err
	}
	for {
		// The configuration as of now: a group of members that have left could not begin.
		if _, err := ask[uint64](ctx, n.Group, machine.IndexQuery{}); err != nil {
			return nil, err
		}
		conf := n.member.Status().Conf
		reply, err := n.client.Exec(ctx, &wire.Command{Op: &wire.Command_CreateGroup{CreateGroup: &wire.CreateGroup{
			Name: name, Voters: slices.Sorted(slices.Values(conf.GetVoters())), Standbys: slices.Sorted(slices.Values(conf.GetLearners())),
		}}})
		if err == nil {
			return g.created(ctx, name)
		}
		if reply.GetCode() != wire.Code_BUSY || len(n.member.Groups().Status()) >= machine.MaxGroups {
			return nil, err
		}
		retry := time.NewTimer(createRetry)
		select {
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
			return nil, fmt.Errorf("%w: %w: %w", ErrUnavailable, contextError(ctx), convert(err))
		}
	}
}

// created returns the handle to a group that has been created, when this process can use it. An earlier one of the name may not be
// removed here yet.
func (g *nodeGroups) created(ctx context.Context, name string) (*Group, error) {
	f, err := g.listed(ctx, name)
	if err == nil {
		err = f.awaitReady(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the group is created: %w", ErrUnknown, cmp.Or(contextError(ctx), convert(err)))
	}
	return f.group, nil
}

// listed returns the group that the default group lists under that name, when this member has a replica of it.
func (g *nodeGroups) listed(ctx context.Context, name string) (*furtherGroup, error) {
	number, err := g.find(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := g.node.member.Groups().Replica(ctx, number); err != nil {
		return nil, g.unreached(ctx, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.used[number]; f != nil {
		return f, nil
	}
	return nil, noGroup() // deleted meanwhile
}

// createRetry is the pause before another attempt to create a group while the members change.
const createRetry = 100 * time.Millisecond

// mayBegin returns an error if a call about groups cannot begin.
func (g *nodeGroups) mayBegin(ctx context.Context) error {
	n := g.node
	if err := n.client.Usable(); err != nil {
		return err
	}
	if err := contextError(ctx); err != nil {
		return err
	}
	return n.raiseLevel(ctx, wire.LevelGroups)
}

// delete is Node.DeleteGroup.
func (g *nodeGroups) delete(ctx context.Context, name string, force bool) error {
	n := g.node
	if name == n.cfg.Group {
		return fmt.Errorf("%w: it is the default group, which is not deleted", ErrInvalid)
	}
	f, err := g.listed(ctx, name)
	if err != nil {
		return err
	}
	_, err = f.client.Exec(ctx, &wire.Command{Op: &wire.Command_SealGroup{SealGroup: &wire.SealGroup{Force: force}}})
	if err != nil && !errors.Is(err, cluster.ErrGroupDeleted) && !client.IsKind(err, client.NoGroup) {
		return err
	}
	number := g.numberOf(f)
	if err := n.member.Groups().AwaitDeleted(ctx, number); err != nil {
		return fmt.Errorf("%w: the group is sealed: %w", ErrUnknown, cmp.Or(contextError(ctx), convert(err)))
	}
	return nil
}

func (g *nodeGroups) numberOf(f *furtherGroup) uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return f.number
}

// noGroup is the fault of a call to a group that does not exist.
func noGroup() error { return &client.Fault{Kind: client.NoGroup} }
