package conclave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// GroupConfig is the settings of the group. They are part of its replicated state, the same
// for all members, and Config has no effect on them once the group exists.
type GroupConfig struct {
	// Voters is how many members vote: 1, 3, 5 or 7. Further members are standbys. While
	// there are fewer members, the group lets an odd number of them vote where it can.
	Voters int
	// ReplaceAfter is the time after which a standby replaces a voter that is silent: one
	// whose process the failure detector has declared dead. It comes back as a standby. A
	// silent member without a directory, whose key is lost with its process, is then removed
	// as well. 5 s to a year, or 0: never. Default of a new group: 1 minute.
	ReplaceAfter time.Duration
	// RemoveAfter is the time after which any silent member is removed. 5 s to a year, or
	// 0: never. Default of a new group: 0.
	RemoveAfter time.Duration
}

// GroupConfig returns the settings of the group. It is linearizable, and blocks until a
// quorum has confirmed that or ctx is done: ErrUnavailable with ctx's error. ErrClosed.
func (g *Group) GroupConfig(ctx context.Context) (GroupConfig, error) {
	c, err := ask[fact.GroupConfig](ctx, g, machine.GroupConfigQuery{})
	if err != nil {
		return GroupConfig{}, fault("read the group's settings", "", err)
	}
	return GroupConfig{
		Voters: int(c.Voters), ReplaceAfter: duration(c.ReplaceAfter), RemoveAfter: duration(c.RemoveAfter),
	}, nil
}

// SetGroupConfig replaces the settings of the group. It returns once the group has stored
// them; the leader then changes the members' roles, one change at a time, which
// Node.Status shows.
//
// ErrInvalid names the field; no effect. ErrUnavailable with ctx's error: no effect.
// ErrUnknown with ctx's error: they may be stored yet. ErrClosed.
func (g *Group) SetGroupConfig(ctx context.Context, c GroupConfig) error {
	err := c.validate()
	if err == nil {
		_, err = g.client.Exec(ctx, &wire.Command{Op: &wire.Command_SetGroupConfig{SetGroupConfig: &wire.SetGroupConfig{
			Voters: uint32(c.Voters), ReplaceAfter: int64(c.ReplaceAfter), RemoveAfter: int64(c.RemoveAfter),
		}}})
	}
	return fault("set the group's settings", "", err)
}

func (c GroupConfig) validate() error {
	low, high := duration(machine.MinReplaceAfter), duration(machine.MaxReplaceAfter)
	valid := func(d time.Duration) bool { return d == 0 || d >= low && d <= high }
	switch {
	case c.Voters != 1 && c.Voters != 3 && c.Voters != 5 && c.Voters != 7:
		return fmt.Errorf("%w Voters: want 1, 3, 5 or 7, got %d", ErrInvalid, c.Voters)
	case !valid(c.ReplaceAfter):
		return fmt.Errorf("%w ReplaceAfter: want 0 (never) or %v to %v, got %v", ErrInvalid, low, high, c.ReplaceAfter)
	case !valid(c.RemoveAfter):
		return fmt.Errorf("%w RemoveAfter: want 0 (never) or %v to %v, got %v", ErrInvalid, low, high, c.RemoveAfter)
	}
	return nil
}

// RemoveMember removes another member from the group permanently, as Leave does for the
// node's own: all its sessions end, and if it runs it stops with ErrRemoved. It is for a
// machine that will not return. It blocks until the group has removed the member from its
// voters and standbys, for which a majority of the remaining voters is needed, or ctx is
// done. It can be repeated after ErrUnknown.
//
// A [Node] does it itself, a [Client] has the member do it that it is connected to.
//
// ErrInvalid: the group has no such member, or it is the one that does it; no effect. Ask another
// one, or call [Node.Leave] there. ErrLastVoter: no other member could vote; no effect.
// ErrUnavailable with ctx's error: no effect. ErrUnknown with ctx's error, or if the connection to the
// member was lost: the group may remove the member later. ErrClosed.
func (g *Group) RemoveMember(ctx context.Context, id MemberID) error {
	return fault("remove member", id.String(), g.admin.removeMember(ctx, id))
}

func (n *Node) removeMember(ctx context.Context, id MemberID) error {
	if id == n.id {
		return fmt.Errorf("%w: it is this node's member: call Leave", ErrInvalid)
	}
	removed, err := ask[bool](ctx, n.Group, machine.RemovedQuery{Member: uint64(id)})
	if err != nil {
		return err
	}
	if !n.member.IsMember(uint64(id)) {
		if removed {
			return nil
		}
		return fmt.Errorf("%w: the group has no such member", ErrInvalid)
	}
	reply, err := n.client.Exec(ctx, &wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{
		Member: uint64(id), Voters: n.member.Voters(),
	}}})
	switch {
	case reply.GetCode() == wire.Code_INVALID:
		return ErrLastVoter
	case err != nil:
		return err
	}
	if err := n.member.Removals().AwaitRemoval(ctx, uint64(id)); err != nil {
		if ctx.Err() == nil { // this node has stopped
			return fmt.Errorf("%w: the group removes the member: %w", ErrUnknown, convert(err))
		}
		return fmt.Errorf("%w: the group removes the member as soon as a majority of the other voters is up: %w", ErrUnknown,
			cmp.Or(contextError(ctx), err))
	}
	return nil
}

// TransferLeadership transfers the leadership of the group to a voter, or to the most
// up-to-date one if to is 0, of several that of the highest [Config.LeaderPriority]. Any member can be asked; one that does not lead asks the
// leader, once it knows one. TransferLeadership blocks until another member leads, even
// if that is not to; the leader has given up after an election timeout; or ctx is done.
// It returns nil at once if to leads already. A [Client] asks the member that it is connected to.
//
// The group spreads leaders of further groups over the voters of the highest [Config.LeaderPriority]. While all voters are up, one that leads at least two groups more than
// another one, with the default group, transfers one of the further groups after some election timeouts: to a voter from which it has
// taken a leadership while that was up, after 60. So a transfer that makes such a difference does not last longer, nor does one to a voter of lower
// priority, if a voter of higher priority led.
//
// ErrInvalid: to is no voter, or it did not catch up; nothing has changed. ErrUnknown
// with ctx's error, or if the connection to the member was lost: leadership may still move. ErrUnavailable with ctx's error: no leader
// was known, and nothing has changed. ErrBusy with 64 transfers under way at this member. ErrClosed.
func (g *Group) TransferLeadership(ctx context.Context, to MemberID) error {
	return fault("transfer leadership", successor(to), g.admin.transferLeadership(ctx, to))
}

// successor names the member that is to lead; "": any.
func successor(to MemberID) string {
	if to == 0 {
		return ""
	}
	return to.String()
}

func (n *Node) transferLeadership(ctx context.Context, to MemberID) error {
	if err := cmp.Or(n.client.Usable(), contextError(ctx)); err != nil {
		return err
	}
	return transfer(ctx, n.replica, to)
}

// transfer transfers the leadership of the replica's group.
func transfer(ctx context.Context, of *replica.Replica, to MemberID) error {
	err := of.TransferLeadership(ctx, uint64(to))
	switch {
	case errors.Is(err, cluster.ErrNoLeader):
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, err, contextError(ctx))
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrUnknown, contextError(ctx))
	case errors.Is(err, cluster.ErrTooManyTransfers):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case errors.Is(err, cluster.ErrStopped): // the leader was asked, perhaps
		return fmt.Errorf("%w: %w", ErrUnknown, convert(err))
	case errors.Is(err, cluster.ErrNoSuccessor) && to != 0:
		return fmt.Errorf("%w: the member is no voter, or it did not catch up: nothing has changed", ErrInvalid)
	case errors.Is(err, cluster.ErrNoSuccessor):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}

// Leave removes this member from the group permanently and closes the node. The
// remaining members then decide by a majority of their own. All sessions of the
// member end, those with NoTTL included; what they held is released after their
// lock-delay, and the member's checks are dropped. Open refuses the directory from
// then on, with ErrRemoved: at once if this member's own log contained the removal, else
// when a majority of the voters have refused it.
//
// It blocks until the group has removed the member and one other voter (or, if this
// member's log lags, a majority of the voters) has confirmed that, ctx is done, or a Close
// that was called meanwhile has waited for as long as it does. Give ctx enough time for a
// leader election. Then it closes the node, as Close does.
//
// ErrLastVoter, ErrUnavailable (the remaining voters would have no quorum, for an election
// timeout) and ctx's error alone (ctx was done before the call) have no effect: the node
// runs on. After any other error the node is closed. ErrClosed: it was closed already, or is
// being closed. ErrUnknown: the member may still belong to the group and count in its
// majority, as the last voter does when all members leave at once. Open it again with
// its directory: if it has left, Open waits until the group has removed it and returns
// ErrRemoved; if not, it can Leave again.
func (n *Node) Leave(ctx context.Context) error {
	err := cmp.Or(n.client.Usable(), contextError(ctx))
	if err == nil {
		err = n.member.Removals().AwaitLeave(ctx)
	}
	if err == nil {
		err = n.leave(ctx)
	}
	return fault("leave", n.cfg.Dir, err)
}

var errCloseCalled = errors.New("the node was closed meanwhile")

func (n *Node) leave(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.shutdown.graceful, func() { cancel(errCloseCalled) })()
	var err error
	if !n.stop(func() { err = n.leaveAndShutDown(ctx) }) {
		return ErrClosed // or it is being closed
	}
	n.awaitEnd()
	return err
}

func (n *Node) leaveAndShutDown(ctx context.Context) error {
	n.eachClient((*client.Client).EndLeases) // each group releases what the member holds there
	err := n.member.Removals().Leave(ctx)
	n.eachClient((*client.Client).StopRenewing)
	switch {
	case err == nil:
		n.member.AnnounceShutdown()
		return nil
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ErrUnknown, contextError(ctx))
	default:
		// By itself the error would mean that the node runs on.
		err = fmt.Errorf("%w: %v", ErrUnknown, convert(err))
	}
	bounded, cancel := n.shutdownContext(ctx)
	defer cancel()
	n.shutDown(bounded, func() bool { return ctx.Err() != nil }) // releases what can be released
	return err
}
