package core

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

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
			if !r.reconciler.facts(r.machine).Active(4) {
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
