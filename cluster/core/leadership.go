package core

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
)

// Who leads, as far as this member has a say in it: when it campaigns, and when
// and to whom it hands leadership over.

// Lost says that the connection from a peer has broken. When the peer was the
// leader it has probably crashed: forget it, so that a vote need not wait for
// the election timeout, and campaign after a short delay that differs between
// the members. A leader that is alive is heard again before that, and a member
// that is wrong about the crash loses its pre-vote.
func (c *Core) Lost(peer uint64) {
	if c.role.RaftState == raft.StateFollower && c.role.Lead == peer {
		c.ignore(c.node.ForgetLeader())
		c.campaignAt = c.ticks + 1 + c.cfg.Rand.Uint64N(3)
	}
}

// Stand makes this member campaign, again and again until there is a leader,
// where waiting for one would be in vain: in a group of one, and as the first
// founder of a new group.
func (c *Core) Stand(first bool) {
	if voters := c.conf.GetVoters(); first || len(voters) == 1 && voters[0] == c.id {
		c.standing = 1
		c.campaign()
	}
}

// campaign asks for votes. Who stands asks again, and leaves them ever more time
// to come: a campaign puts an end to the one before.
func (c *Core) campaign() {
	c.ignore(c.node.Campaign())
	c.campaignAt = 0
	if c.standing > 0 {
		c.campaignAt = c.ticks + c.standing
		c.standing = min(2*c.standing, uint64(c.cfg.ElectionTicks))
	}
}

// transfer is a request to hand leadership over.
type transfer struct {
	to   uint64 // 0: to whoever is furthest
	done chan<- error
}

// ErrNotLeader says that leadership cannot be handed over from here.
var ErrNotLeader = errors.New("this member does not lead the group")

// ErrNoSuccessor says that there is nobody to hand leadership to.
var ErrNoSuccessor = errors.New("no other voter is up to date")

// Transfer begins to hand leadership over, to a member or to the one that is
// furthest when to is 0; roleChanged ends it. raft gives up by itself after an
// election timeout when the successor does not answer, which Tick notices. done,
// which must have room, hears what came of it.
func (c *Core) Transfer(to uint64, done chan<- error) {
	t := &transfer{to, done}
	// Since the last Ready the office may be lost. raft would pass the request on to
	// the new leader, in the successor's name.
	if c.node.BasicStatus().RaftState != raft.StateLeader {
		t.done <- ErrNotLeader
		return
	}
	if t.to == raft.None {
		t.to = c.successor(c.conf.GetVoters())
	}
	if t.to == c.id {
		t.done <- nil
		return
	}
	if !slices.Contains(c.conf.GetVoters(), t.to) {
		t.done <- ErrNoSuccessor
		return
	}
	c.transfers = append(c.transfers, t)
	c.node.TransferLeader(t.to)
}

// transferred answers everybody who waits for another leader.
func (c *Core) transferred(err error) {
	for _, t := range c.transfers {
		t.done <- err
	}
	c.transfers = nil
}

// successor is the one of these voters that is furthest, among those heard of lately
// if there are any: raft forgets all of them for a moment once in each election
// timeout.
func (c *Core) successor(voters []uint64) uint64 {
	var best uint64
	var active bool
	var match uint64
	progress := c.node.Status().Progress
	for _, id := range voters {
		p, ok := progress[id]
		if !ok || id == c.id {
			continue
		}
		better := best == raft.None || p.RecentActive && !active ||
			p.RecentActive == active && (p.Match > match || p.Match == match && id < best)
		if better {
			best, active, match = id, p.RecentActive, p.Match
		}
	}
	return best
}

// watchDisk hands leadership over when the disk has not finished a write for an
// election timeout. Without that a leader with a hanging disk would go on to
// send heartbeats, and the group would wait for it.
func (c *Core) watchDisk() {
	stuck := len(c.disk.batch) > 0 && c.ticks >= c.disk.since+uint64(c.cfg.ElectionTicks)
	if !stuck || c.role.RaftState != raft.StateLeader {
		return
	}
	c.disk.since = c.ticks // the next attempt comes as much later
	if to := c.successor(c.conf.GetVoters()); to != raft.None {
		c.cfg.Logger.Warn("the disk is stuck; handing leadership over", "to", fmt.Sprintf("%016x", to))
		c.node.TransferLeader(to)
	}
}
