package core

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// A leader that was removed goes on while it has no successor.
func TestDecide_RemovedLeaderWithoutSuccessor(t *testing.T) {
	for name, test := range map[string]struct {
		situation
		want string
	}{
		// The only standby was lost after the removal was recorded; another member was admitted.
		"the only voter is removed, a member was admitted": {situation{voters: ids(1), admitted: ids(3), removed: ids(1), want: 3}, "[add 0000000000000003]"},
		"and its first standby is silent":                  {situation{voters: ids(1), standbys: ids(2), admitted: ids(3), removed: ids(1), silent: ids(2), want: 3}, "[add 0000000000000003]"},
		// Two of three leave at the same time, and the third is dead.
		"the voter that stays is silent, a standby is there": {situation{voters: ids(1, 2, 3), standbys: ids(4), removed: ids(1, 2), silent: ids(3), want: 3}, "[promote 0000000000000004 demote 0000000000000002]"},
		"and another was admitted":                           {situation{voters: ids(1, 2, 3), admitted: ids(4), removed: ids(1, 2), silent: ids(3), want: 3}, "[add 0000000000000004]"},
	} {
		t.Run(name, func(t *testing.T) {
			if plan := decide(test.facts()); fmt.Sprint(plan.Changes) != test.want {
				t.Errorf("%s (transfer %t: %s), want %s", fmt.Sprint(plan.Changes), plan.Transfer, plan.Reason, test.want)
			}
		})
	}
}

// A leader that a joint configuration demotes does not leave it itself: it would step down
// as the only member that knows of the commit, with a log that may be longer than that of
// the voters that remain, which need its vote if another of the old ones is lost.
func TestDecide_JointDemotesLeader(t *testing.T) {
	f := situation{voters: ids(3), standbys: ids(4), want: 1, leader: 2}.facts()
	f.conf.VotersOutgoing, f.conf.LearnersNext = ids(1, 2, 3), ids(1, 2)
	if plan := decide(f); plan.Leave || !plan.Transfer {
		t.Errorf("%+v", plan)
	}
	f.self = 3
	if plan := decide(f); !plan.Leave || plan.Transfer {
		t.Errorf("%+v", plan)
	}
}

// A member that was heard within the last election timeout is active, also in the moment after
// raft has reset its own record of that. A voter that leaves is not demoted then, but replaced by
// the standby.
func TestReconcile_ActiveAfterRaftsReset(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}).lead()
	recent := func(id uint64) bool { return r.node.Status().Progress[id].RecentActive }
	for range 30 {
		for id := uint64(2); id <= 4; id++ {
			r.mustReceive(message(raftpb.MsgHeartbeatResp, id, r.term))
		}
		before := recent(4)
		r.pass(1)
		if before && !recent(4) {
			if !r.facts().active(4) {
				t.Error("not active")
			}
			return
		}
	}
	t.Fatal("raft has not reset RecentActive")
}

// A member that has died is not active, so that no other voter is demoted that the group needs.
// What it sent as the leader before this member does not count, nor what it sent before its
// connection broke.
func TestReconcile_DeadMemberIsInactive(t *testing.T) {
	voters := &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	for name, start := range map[string]func(*rig){
		"the leader before": func(r *rig) {
			entries := []*raftpb.Entry{empty(2, 5), empty(3, 5), empty(4, 5)}
			r.mustReceive(message(raftpb.MsgApp, 3, 5, following(1, 1, entries...), commit(4)))
			r.settle()
			r.PeerDisconnected(3)
			r.elect() // by 2
			r.settle()
		},
		"the leader before, and its connection is still up": func(r *rig) {
			entries := []*raftpb.Entry{empty(2, 5), empty(3, 5), empty(4, 5)}
			r.mustReceive(message(raftpb.MsgApp, 3, 5, following(1, 1, entries...), commit(4)))
			r.settle()
			r.elect() // leadership was transferred to it
			r.settle()
		},
		"a follower": func(r *rig) {
			r.lead()
			r.mustReceive(message(raftpb.MsgHeartbeatResp, 3, r.term))
			r.settle()
			r.PeerDisconnected(3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigIn(t, voters)
			start(r)
			r.acknowledge(2)
			r.machine = removedMembers{r.machine, []uint64{2}}
			for range 2 * electionTicks {
				if got := r.changes(slices.Concat(r.pass(1, 2), r.acknowledge(2))); len(got) > 0 {
					t.Fatalf("%q, and 3 is dead", got)
				}
			}
		})
	}
}
