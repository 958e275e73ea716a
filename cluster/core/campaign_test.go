package core

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

func kinds(messages []*raftpb.Message, kind raftpb.MessageType) (to []uint64) {
	for _, m := range messages {
		if m.GetType() == kind {
			to = append(to, m.GetTo())
		}
	}
	return to
}

// The successor is the most up-to-date of the recently active voters, or of all voters
// if none is active; of several one that is connected, and of the highest priority.
func TestSuccessor(t *testing.T) {
	type peer struct {
		behind   uint64
		heard    bool
		priority int32 // lost: it is not connected
	}
	const lost = -1000
	for name, test := range map[string]struct {
		second, third peer
		want          uint64
	}{
		"equal":                     {peer{0, true, 0}, peer{0, true, 0}, 2},
		"second ahead":              {peer{0, true, 0}, peer{1, true, 0}, 2},
		"third ahead":               {peer{1, true, 0}, peer{0, true, 0}, 3},
		"second ahead and inactive": {peer{0, false, 0}, peer{1, true, 0}, 3},
		"third ahead and inactive":  {peer{1, true, 0}, peer{0, false, 0}, 2},
		"equal, second inactive":    {peer{0, false, 0}, peer{0, true, 0}, 3},
		"equal, third inactive":     {peer{0, true, 0}, peer{0, false, 0}, 2},
		"none active":               {peer{1, false, 0}, peer{0, false, 0}, 3},
		"third preferred":           {peer{0, true, 0}, peer{0, true, 1}, 3},
		"second not to lead":        {peer{0, true, -1}, peer{0, true, 0}, 3},
		"third not to lead":         {peer{0, true, 0}, peer{0, true, -1}, 2},
		"preferred, behind":         {peer{0, true, 0}, peer{1, true, 9}, 2},
		"preferred, inactive":       {peer{0, true, 0}, peer{0, false, 9}, 2},
		"preferred, not connected":  {peer{0, true, lost}, peer{0, true, -9}, 3},
		"not connected, ahead":      {peer{0, true, lost}, peer{1, true, 9}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			const learner = 4
			priorities := map[uint64]int32{2: test.second.priority, 3: test.third.priority}
			r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{learner}}).follow().lead()
			r.mustSubmit(&wire.Submission{Incarnation: make([]byte, 16), Calls: []*wire.Call{{Seq: 1}}})
			r.settle()
			r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(r.last-test.second.behind, 0)))
			r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, following(r.last-test.third.behind, 0)))
			r.mustReceive(message(raftpb.MsgAppResp, learner, r.term, following(r.last, 0)))
			// raft resets RecentActive once in each election timeout.
			for r.node.Status().Progress[3].RecentActive {
				r.pass(1)
			}
			r.mustReceive(message(raftpb.MsgHeartbeatResp, learner, r.term))
			for id, heard := range map[uint64]bool{2: test.second.heard, 3: test.third.heard} {
				if heard {
					r.mustReceive(message(raftpb.MsgHeartbeatResp, id, r.term))
				}
			}
			r.priority = func(id uint64) (int32, bool) { return priorities[id], priorities[id] != lost }
			if got := r.successor(r.conf.GetVoters()); got != test.want {
				t.Errorf("successor %d, want %d", got, test.want)
			}
		})
	}
}

// A leader whose disk is stalled transfers leadership after an election timeout, and
// again after each further one. A follower does nothing.
func TestStalledDisk_LeaderTransfers(t *testing.T) {
	r := newRig(t).follow().lead()
	if asked := kinds(r.pass(3*electionTicks, 2), raftpb.MsgTimeoutNow); len(asked) > 0 {
		t.Fatalf("transfers to %d with an idle disk", asked)
	}
	r.mustSubmit(&wire.Submission{Incarnation: make([]byte, 16), Calls: []*wire.Call{{Seq: 1}}})
	out, err := r.Take(0)
	if err != nil || len(out.Batch.writes) == 0 {
		t.Fatalf("%d writes, %v", len(out.Batch.writes), err)
	}
	r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(r.last, 0)))
	for round := range 3 {
		if asked := kinds(r.pass(electionTicks-1, 2), raftpb.MsgTimeoutNow); len(asked) > 0 {
			t.Fatalf("round %d: transfers to %d too soon", round, asked)
		}
		if asked := kinds(r.pass(1, 2), raftpb.MsgTimeoutNow); !slices.Equal(asked, []uint64{2}) {
			t.Fatalf("round %d: transfers to %d", round, asked)
		}
	}
	r.persist(out.Batch.writes)
	r.settle()
	if asked := kinds(r.pass(3*electionTicks, 2), raftpb.MsgTimeoutNow); len(asked) > 0 {
		t.Errorf("transfers to %d with a working disk", asked)
	}
}

// A follower whose connection from the leader has broken campaigns shortly after, well
// before the election timeout, unless the leader is heard from again.
func TestPeerDisconnected_FollowerCampaigns(t *testing.T) {
	soon := 4
	asks := func(r *rig) (at int) {
		for at = 1; at <= soon; at++ {
			if len(kinds(r.pass(1), raftpb.MsgPreVote)) > 0 {
				return at
			}
		}
		return 0
	}
	delays := make(map[int]bool)
	for seed := range uint64(20) {
		r := newRig(t, func(c *Config) { c.Rand = rand.New(rand.NewPCG(seed, 1)) }).follow()
		r.PeerDisconnected(2)
		if sent := r.settle(); len(sent) > 0 || r.Status().Leader != raft.None {
			t.Fatalf("led by %d, sends %v", r.Status().Leader, sent)
		}
		delay := asks(r)
		if delay == 0 {
			t.Fatalf("no campaign in %d ticks", soon)
		}
		delays[delay] = true
	}
	if len(delays) < 2 {
		t.Errorf("all campaign at once: after %v ticks", delays)
	}
	for name, event := range map[string]func(*rig){
		"another follower's":     func(r *rig) { r.PeerDisconnected(3) },
		"the leader is alive":    func(r *rig) { r.PeerDisconnected(2); r.settle(); r.mustReceive(message(raftpb.MsgHeartbeat, 2, 5)) },
		"alive in the same Take": func(r *rig) { r.PeerDisconnected(2); r.mustReceive(message(raftpb.MsgHeartbeat, 2, 5)) },
		"another member leads":   func(r *rig) { r.PeerDisconnected(2); r.settle(); r.mustReceive(message(raftpb.MsgHeartbeat, 3, 6)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).follow()
			event(r)
			r.settle()
			if at := asks(r); at != 0 || r.Status().Leader == raft.None {
				t.Errorf("campaigns at tick %d, led by %d", at, r.Status().Leader)
			}
			if r.campaignAt != 0 { // a member that is about to campaign is not quiet
				t.Errorf("still plans to campaign, at tick %d of %d", r.campaignAt, r.ticks)
			}
		})
	}
}

// The first founder of a group campaigns until there is a leader, and leaves ever more
// time for the votes. A single voter elects itself.
func TestCampaignFirst(t *testing.T) {
	r := newRig(t)
	r.CampaignFirst(false)
	if sent := r.settle(); len(sent) > 0 {
		t.Errorf("campaigns in a group of three: %v", sent)
	}
	r.CampaignFirst(true)
	if len(kinds(r.settle(), raftpb.MsgPreVote)) == 0 {
		t.Fatal("does not campaign")
	}
	asked := make(map[int]bool)
	for tick := 1; tick <= 40; tick++ {
		asked[tick] = len(kinds(r.pass(1), raftpb.MsgPreVote)) > 0
	}
	own := []int{1, 3, 7, 15, 25, 35}
	for _, tick := range own {
		if !asked[tick] {
			t.Errorf("does not ask again at tick %d", tick)
		}
		delete(asked, tick)
	}
	maps.DeleteFunc(asked, func(_ int, asks bool) bool { return !asks })
	if len(asked) > 40/electionTicks { // raft's own, at random
		t.Errorf("asks at the ticks %v as well", slices.Sorted(maps.Keys(asked)))
	}

	led := newRig(t)
	led.CampaignFirst(true)
	led.settle()
	led.mustReceive(message(raftpb.MsgHeartbeat, 2, 5))
	led.settle()
	led.PeerDisconnected(2)
	asks := 0
	for range electionTicks - 1 {
		if len(kinds(led.pass(1), raftpb.MsgPreVote)) > 0 {
			asks++
		}
	}
	if asks != 1 {
		t.Errorf("campaigns %d times after a leader was known, want 1", asks)
	}

	alone := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1}, Learners: []uint64{2}})
	alone.CampaignFirst(false)
	if alone.settle(); !alone.Status().Leads {
		t.Error("does not lead a group of one")
	}
}
