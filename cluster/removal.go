package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// How a member leaves the group for good. That it has left is a fact of the
// machine. Whoever leads makes the membership agree with it, one change at a
// time, however often leaders change meanwhile. A leader that is to go itself
// hands leadership over: as the last to know that the change was agreed on, it
// must not be the one to go.

// parting is a member that is not in the membership any more. Its connection
// stays for a while, so that it hears of that.
type parting struct {
	member uint64
	since  uint64 // tick
}

// remove proposes the next change of the membership that is due.
func (c *core) remove() {
	if c.role.RaftState != raft.StateLeader || !c.clock.running || c.removing {
		return
	}
	for _, id := range c.machine.Left() {
		switch {
		case !slices.Contains(c.conf.GetVoters(), id) && !slices.Contains(c.conf.GetLearners(), id):
		case id != c.id:
			c.proposeRemoval(id)
			return
		case c.node.BasicStatus().LeadTransferee == raft.None:
			if to := c.successor(); to != raft.None {
				c.node.TransferLeader(to)
			}
			return
		}
	}
}

func (c *core) proposeRemoval(id uint64) {
	err := c.node.ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
		Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: &id,
	}}})
	if err != nil {
		c.ignore(err) // leadership is being handed over
		return
	}
	c.removing = true
}

// membership takes note of another membership.
func (c *core) membership(conf *raftpb.ConfState) {
	for _, id := range slices.Concat(c.conf.GetVoters(), c.conf.GetLearners()) {
		if !slices.Contains(conf.GetVoters(), id) && !slices.Contains(conf.GetLearners(), id) {
			c.parting = append(c.parting, parting{id, c.ticks})
		}
	}
	c.conf, c.removing = conf, false
	c.out.membership = true
}

// part lets those go who have had the time to hear that they are not members.
func (c *core) part() {
	for len(c.parting) > 0 && c.ticks >= c.parting[0].since+uint64(c.electionTicks) {
		c.out.parted = append(c.out.parted, c.parting[0].member)
		c.parting = c.parting[1:]
	}
}

// ErrOnlyVoter says that a group would have nobody left to decide.
var ErrOnlyVoter = errors.New("this is the only voter of the group")

// OnlyVoter reports whether this member is the only one that votes.
func (m *Member) OnlyVoter() bool {
	voters := m.status.Load().conf.GetVoters()
	return len(voters) == 1 && voters[0] == m.identity.member
}

// Retire takes this member out of the group for good: leave is the command by
// which the machine notes that. It blocks until this member has seen that it is
// not in the membership any more, or ctx ends; and then the directory is marked,
// so that nobody opens it again.
func (m *Member) Retire(ctx context.Context, leave func(context.Context) error) error {
	if m.OnlyVoter() {
		return ErrOnlyVoter
	}
	if err := m.Transfer(ctx, 0); err != nil && !errors.Is(err, ErrNotLeader) {
		return err
	}
	if err := leave(ctx); err != nil {
		return err
	}
	select {
	case <-m.removed:
	case <-ctx.Done():
		return ctx.Err()
	case <-m.done:
		return m.stopped()
	}
	return m.markLeft()
}

func (m *Member) markLeft() error {
	return m.identity.save(func(r *wire.Identity) { r.Left = true })
}

// retired is for a member that was stopped between leaving and noting it.
func (m *Member) retired() error {
	if err := m.markLeft(); err != nil {
		return err
	}
	return fmt.Errorf("%w: start with an empty directory, as a new member", ErrLeft)
}

// regroup acts on another membership, on the loop's goroutine.
func (m *Member) regroup(out effects) {
	if out.membership {
		m.meet(m.core.conf)
		if !m.members.has(m.identity.member) {
			m.removedOnce.Do(func() { close(m.removed) })
		}
	}
	for _, id := range out.parted {
		m.port.RemovePeer(id)
	}
}
