package conclave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// mayCreate returns an error for arguments of CreateGroup.
func mayCreate(name string, cfg GroupConfig) error {
	if (cfg != GroupConfig{}) {
		return fmt.Errorf("%w GroupConfig: a further group has the members and voters of the default group: want the zero value", ErrInvalid)
	}
	return validName(name)
}

// create creates a further group, and returns it when this process can use it. nil: it is the default group.
func (g *nodeGroups) create(ctx context.Context, name string) (*furtherGroup, error) {
	n := g.node
	if err := validName(name); err != nil {
		return nil, err
	}
	if name == n.cfg.Group {
		return nil, n.client.Usable()
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

// created returns a group that has been created, when this process can use it. An earlier one of the name may not be
// removed here yet.
func (g *nodeGroups) created(ctx context.Context, name string) (*furtherGroup, error) {
	f, err := g.listed(ctx, func(v machine.GroupView) bool { return v.Name == name })
	if err == nil {
		err = f.await(ctx, f.ready)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the group is created: %w", ErrUnknown, cmp.Or(contextError(ctx), convert(err)))
	}
	return f, nil
}

// listed returns one of the groups that the default group lists, when this member has a replica of it.
func (g *nodeGroups) listed(ctx context.Context, is func(machine.GroupView) bool) (*furtherGroup, error) {
	all, err := ask[[]machine.GroupView](ctx, g.node.Group, machine.GroupsQuery{})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, is)
	if at < 0 {
		return nil, noGroup()
	}
	number := all[at].Number
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

var errNotDeleted = fmt.Errorf("%w: it is the default group, which is not deleted", ErrInvalid)

// delete deletes the further group that the function finds.
func (g *nodeGroups) delete(ctx context.Context, is func(machine.GroupView) bool, force bool) error {
	n := g.node
	f, err := g.listed(ctx, is)
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

// numberOf returns the number of a group, 0 for the default one.
func (g *nodeGroups) numberOf(f *furtherGroup) uint32 {
	if f == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return f.number
}

// noGroup is the fault of a call to a group that does not exist.
func noGroup() error { return &client.Fault{Kind: client.NoGroup} }

// furtherAdmin is what a member does for a further group.
type furtherAdmin struct{ *furtherGroup }

var errDefaultGroup = fmt.Errorf("%w: only the default group does that, for all groups", ErrInvalid)

func (a furtherAdmin) status(ctx context.Context) (Status, error)   { return a.node.status(ctx) }
func (a furtherAdmin) removeMember(context.Context, MemberID) error { return errDefaultGroup }

// backUp needs no registration in the group, for which it must have a quorum.
func (a furtherAdmin) backUp(ctx context.Context, w io.Writer) error {
	number := a.node.groups.numberOf(a.furtherGroup)
	if number == 0 {
		var err error
		if number, err = findGroup(ctx, a.node.Group, a.name, false); err != nil {
			if client.IsKind(err, client.NoGroup) || client.IsKind(err, client.Closed) {
				return err
			}
			return &replica.IncompleteError{Cause: cmp.Or(contextError(ctx), err)} // ErrUnavailable is that of a backup that is complete
		}
	}
	return a.node.member.Groups().BackupOf(ctx, number, w)
}

func (a furtherAdmin) transferLeadership(ctx context.Context, to MemberID) error {
	err := cmp.Or(a.client.Usable(), contextError(ctx))
	if err == nil {
		err = a.reach(ctx)
	}
	if err != nil {
		return err
	}
	return transfer(ctx, a.replica.Load(), to)
}
