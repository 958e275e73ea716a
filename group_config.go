package conclave

import (
	"cmp"
	"context"
	"fmt"
	"time"

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
func (a *access) GroupConfig(ctx context.Context) (GroupConfig, error) {
	c, err := ask[wire.GroupConfig](ctx, a, machine.GroupConfigQuery{})
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
func (a *access) SetGroupConfig(ctx context.Context, c GroupConfig) error {
	err := c.validate()
	if err == nil {
		_, err = a.client.Exec(ctx, &wire.Command{Op: &wire.Command_SetGroupConfig{SetGroupConfig: &wire.SetGroupConfig{
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
// done.
//
// ErrInvalid: the group has no such member, or it is the node's own; no effect.
// ErrLastVoter: no other member could vote; no effect. ErrUnavailable with ctx's error: no
// effect. ErrUnknown with ctx's error: the group may remove the member later. ErrClosed.
func (n *Node) RemoveMember(ctx context.Context, id MemberID) error {
	return fault("remove member", id.String(), n.removeMember(ctx, id))
}

func (n *Node) removeMember(ctx context.Context, id MemberID) error {
	if id == n.id {
		return fmt.Errorf("%w: it is this node's member: call Leave", ErrInvalid)
	}
	removed, err := ask[bool](ctx, &n.access, machine.RemovedQuery{Member: uint64(id)})
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
	if err := n.member.AwaitRemoval(ctx, uint64(id)); err != nil {
		if ctx.Err() == nil { // this node has stopped
			return fmt.Errorf("%w: the group removes the member: %w", ErrUnknown, convert(err))
		}
		return fmt.Errorf("%w: the group removes the member as soon as a majority of the other voters is up: %w", ErrUnknown,
			cmp.Or(contextError(ctx), err))
	}
	return nil
}
