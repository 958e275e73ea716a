package core

import "go.etcd.io/raft/v3"

// PeerDisconnected reports that the connection from a peer has broken. If that was the
// leader, it has probably crashed: this member forgets the leader, so that it may vote
// before the election timeout, and campaigns after a short random delay. The next
// heartbeat of a live leader cancels that, and pre-vote keeps a mistaken campaign from
// deposing it.
func (c *Core) PeerDisconnected(peer uint64) {
	if p := c.peers.byID[peer]; p != nil {
		p.connectionLost()
	}
	if c.role.RaftState == raft.StateFollower && c.role.Lead == peer {
		c.ignore(c.node.ForgetLeader())
		c.campaignAt = c.ticks + 1 + c.cfg.Rand.Uint64N(3)
	}
}

// CampaignFirst makes this member campaign at once, and again until there is a leader,
// where no leader can exist yet: in a group of one, and as the first founder of a new
// group.
func (c *Core) CampaignFirst(founder bool) {
	if voters := c.conf.GetVoters(); founder || len(voters) == 1 && voters[0] == c.id {
		c.campaignPause = 1
		c.campaign()
	}
}

// campaign starts an election. The pause between campaigns doubles, because each one
// ends the one before.
func (c *Core) campaign() {
	c.ignore(c.node.Campaign())
	c.campaignAt = 0
	if c.campaignPause > 0 {
		c.campaignAt = c.ticks + c.campaignPause
		c.campaignPause = min(2*c.campaignPause, uint64(c.cfg.ElectionTicks))
	}
}
