package core

import (
	"go.etcd.io/raft/v3"

	"github.com/conclave-go/conclave/internal/wire"
)

// When this member campaigns, and when it gives leadership up because of its disk.

// PeerDisconnected reports that the connection from a peer has broken. If the peer
// led, it has probably crashed: the member forgets it, so that it may vote without
// waiting for the election timeout, and campaigns after a short random delay. A
// leader that is alive is heard from before that, and a member that is wrong about
// the crash loses its pre-vote.
func (c *Core) PeerDisconnected(peer uint64) {
	if c.role.RaftState == raft.StateFollower && c.role.Lead == peer {
		c.ignore(c.node.ForgetLeader())
		c.campaignAt = c.ticks + 1 + c.cfg.Rand.Uint64N(3)
	}
}

// CampaignFirst makes this member campaign, repeatedly until there is a leader,
// where waiting for a leader would be in vain: in a group of one, and as the first
// founder of a new group.
func (c *Core) CampaignFirst(founder bool) {
	if voters := c.conf.GetVoters(); founder || len(voters) == 1 && voters[0] == c.id {
		c.campaignPause = 1
		c.campaign()
	}
}

// campaign starts an election. A repeated one leaves ever more time for the votes:
// a campaign ends the one before.
func (c *Core) campaign() {
	c.ignore(c.node.Campaign())
	c.campaignAt = 0
	if c.campaignPause > 0 {
		c.campaignAt = c.ticks + c.campaignPause
		c.campaignPause = min(2*c.campaignPause, uint64(c.cfg.ElectionTicks))
	}
}

// checkDisk transfers leadership when the disk has not finished a write for an
// election timeout. A leader with a stalled disk would go on sending heartbeats,
// and the group would wait for it.
func (c *Core) checkDisk() {
	stalled := len(c.disk.batch) > 0 && c.ticks >= c.disk.since+uint64(c.cfg.ElectionTicks)
	if !stalled || c.role.RaftState != raft.StateLeader {
		return
	}
	c.disk.since = c.ticks // the next attempt comes as much later
	if to := c.successor(c.conf.GetVoters()); to != raft.None {
		c.cfg.Logger.Warn("disk stalled, transferring leadership", "to", wire.MemberID(to))
		c.node.TransferLeader(to)
	}
}
