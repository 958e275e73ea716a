package core

import (
	"math/rand/v2"

	"go.etcd.io/raft/v3"
)

// elections is when this member campaigns.
type elections struct {
	*raftNode
	peers *peers
	rand  *rand.Rand

	campaignAt    uint64 // tick of the next campaign; 0: none
	campaignPause uint64 // ticks from that to the following one; 0: it is the last
}

// tick campaigns if that is due. A leader that was forgotten and known again between two Readys is no change of leaders to raft, so
// that the campaign is still planned then.
func (e *elections) tick() {
	switch {
	case e.campaignAt == 0 || e.ticks < e.campaignAt:
	case e.role.Lead == raft.None:
		e.campaign()
	default:
		e.leaderKnown()
	}
}

// leaderKnown ends the campaigns.
func (e *elections) leaderKnown() { e.campaignAt, e.campaignPause = 0, 0 }

// peerDisconnected runs when the connection from a peer has broken. If that was the
// leader, it has probably crashed: this member forgets the leader, so that it may vote
// before the election timeout, and campaigns after a short random delay. The next
// heartbeat of a live leader cancels that, and pre-vote keeps a mistaken campaign from
// deposing it.
func (e *elections) peerDisconnected(peer uint64) {
	if p := e.peers.byID[peer]; p != nil {
		p.connectionLost()
	}
	if e.role.RaftState == raft.StateFollower && e.role.Lead == peer {
		e.ignore(e.node.ForgetLeader())
		e.campaignAt = e.ticks + 1 + e.rand.Uint64N(3)
	}
}

// CampaignFirst makes this member campaign at once, and again until there is a leader,
// where no leader can exist yet: in a group of one, and as the first founder of a new
// group.
func (e *elections) CampaignFirst(founder bool) {
	if voters := e.conf.GetVoters(); founder || len(voters) == 1 && voters[0] == e.id {
		e.campaignPause = 1
		e.campaign()
	}
}

// campaign starts an election. The pause between campaigns doubles, because each one
// ends the one before.
func (e *elections) campaign() {
	e.ignore(e.node.Campaign())
	e.campaignAt = 0
	if e.campaignPause > 0 {
		e.campaignAt = e.ticks + e.campaignPause
		e.campaignPause = min(2*e.campaignPause, e.electionTicks)
	}
}
