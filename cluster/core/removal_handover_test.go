package core

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// changes describes the membership changes in messages.
func (r *rig) changes(messages []*raftpb.Message) (list []string) {
	r.t.Helper()
	for _, m := range messages {
		if m.GetTo() != 2 {
			continue
		}
		for _, e := range m.GetEntries() {
			if e.GetType() == raftpb.EntryNormal {
				continue
			}
			change, err := confChange(e)
			if err != nil {
				r.t.Fatal(err)
			}
			for _, c := range change.AsV2().GetChanges() {
				switch c.GetType() {
				case raftpb.ConfChangeAddLearnerNode:
					list = append(list, demotes(c.GetNodeId()))
				case raftpb.ConfChangeRemoveNode:
					list = append(list, removes(c.GetNodeId()))
				default:
					r.t.Fatalf("a change that removes no member: %v", c)
				}
			}
		}
	}
	return list
}

func demotes(id uint64) string { return fmt.Sprint("demotes ", id) }
func removes(id uint64) string { return fmt.Sprint("removes ", id) }

// acknowledge acknowledges the whole log in the name of members.
func (r *rig) acknowledge(ids ...uint64) (messages []*raftpb.Message) {
	r.t.Helper()
	for _, id := range ids {
		r.mustReceive(message(raftpb.MsgAppResp, id, r.term, following(r.last, 0)))
	}
	return r.settle()
}

// Removed members leave the configuration one after the other, a voter by way of a
// standby, each change once, after the one before is applied.
func TestRemoval_OneChangeAtATime(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4, 5}}).follow().lead()
	r.acknowledge(2, 3)
	r.machine = removedMembers{r.machine, []uint64{3, 4, 5, 9}} // 9 was removed before
	sent := r.settle()
	for _, want := range []string{demotes(3), removes(3), removes(4), removes(5)} {
		for wait := 0; len(r.changes(sent)) == 0 && wait <= electionTicks; wait++ {
			sent = slices.Concat(r.pass(1, 2), r.acknowledge(2)) // a standby that does not answer is waited for
		}
		if got := r.changes(sent); !slices.Equal(got, []string{want}) {
			t.Fatalf("%q, want %q", got, want)
		}
		if more := r.changes(r.pass(2, 2)); len(more) > 0 {
			t.Fatalf("%q before it %s", more, want)
		}
		sent = r.acknowledge(2)
		if index, _ := r.Digest(); index != r.applied {
			t.Fatalf("the digest is of index %d, %d are applied", index, r.applied)
		}
	}
	if conf := r.Status().Membership; !slices.Equal(conf.GetVoters(), []uint64{1, 2}) || len(conf.GetLearners()) > 0 {
		t.Errorf("the members are %v", conf)
	}
	if more := r.changes(slices.Concat(sent, r.pass(2, 2))); len(more) > 0 {
		t.Errorf("%q when none is left to remove", more)
	}
}

// The removal, as opposed to the demotion, commits by the remaining voters: the removed
// member's acknowledgement does not count.
func TestRemoval_CommitWithoutRemovedMember(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4}}).follow()
	r.ignore(r.node.Campaign())
	for !r.Status().Proposing {
		for _, m := range r.settle() {
			kind := map[raftpb.MessageType]raftpb.MessageType{raftpb.MsgPreVote: raftpb.MsgPreVoteResp, raftpb.MsgVote: raftpb.MsgVoteResp}
			if answer, asked := kind[m.GetType()]; asked && m.GetTo() != 4 {
				r.mustReceive(message(answer, m.GetTo(), m.GetTerm()))
			}
		}
		if r.role.RaftState == raft.StateLeader {
			r.acknowledge(2, 3)
		}
	}
	r.machine = removedMembers{r.machine, []uint64{4}}
	r.settle()
	r.acknowledge(2, 4)
	if got := r.Status().Membership; !slices.Equal(got.GetVoters(), []uint64{1, 2, 3}) || !slices.Equal(got.GetLearners(), []uint64{4}) {
		t.Fatalf("the members are %v", got)
	}
	if early := r.changes(r.pass(electionTicks/2, 2, 3)); len(early) > 0 {
		t.Fatalf("%q before the demotion is settled", early)
	}
	r.acknowledge(2, 3, 4)
	if early := r.changes(r.pass(commitTicks-1, 2, 3)); len(early) > 0 {
		t.Fatalf("%q before the member can know of its demotion", early)
	}
	if got := r.changes(r.pass(1, 2, 3)); !slices.Equal(got[:min(1, len(got))], []string{removes(4)}) {
		t.Fatalf("%q, want the removal", got)
	}
	r.acknowledge(4)
	if got := r.Status().Membership.GetLearners(); len(got) == 0 {
		t.Error("removed, and of the remaining voters only the leader has it")
	}
	r.acknowledge(3)
	if got := r.Status().Membership.GetLearners(); len(got) > 0 {
		t.Error("the member is not removed")
	}
}

// A voter is demoted once most of the remaining voters were heard of lately; otherwise
// the group would stall without it. A standby is not needed.
func TestRemoval_WaitsForQuorumOfOthers(t *testing.T) {
	all := []uint64{1, 2, 3, 4, 5}
	for name, test := range map[string]struct {
		voters, learners []uint64
		removed          uint64
		heard            []uint64
		want             bool
	}{
		"of three, the other active":                 {all[:3], nil, 3, []uint64{2}, true},
		"of three, only the removed one active":      {all[:3], nil, 3, []uint64{3}, false},
		"of four, one other active":                  {all[:4], nil, 4, []uint64{2, 4}, true},
		"of four, no other active":                   {all[:4], nil, 4, []uint64{4}, false},
		"of five, one other active":                  {all[:5], nil, 5, []uint64{2, 5}, false},
		"of five, two others active":                 {all[:5], nil, 5, []uint64{2, 3}, true},
		"a standby, no other active":                 {all[:3], []uint64{4}, 4, nil, true},
		"of two, none active":                        {all[:2], nil, 2, nil, true},
		"of three, a standby and the removed active": {all[:3], []uint64{4}, 3, []uint64{3, 4}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigIn(t, &raftpb.ConfState{Voters: test.voters, Learners: test.learners}).follow()
			r.ignore(r.node.Campaign())
			for !r.Status().Proposing {
				sent := r.settle()
				for _, m := range sent {
					switch m.GetType() {
					case raftpb.MsgPreVote:
						r.mustReceive(message(raftpb.MsgPreVoteResp, m.GetTo(), m.GetTerm()))
					case raftpb.MsgVote:
						r.mustReceive(message(raftpb.MsgVoteResp, m.GetTo(), m.GetTerm()))
					case raftpb.MsgApp:
						r.mustReceive(message(raftpb.MsgAppResp, m.GetTo(), r.term, following(r.last, 0)))
					}
				}
			}
			active := func() bool {
				return slices.ContainsFunc(test.voters, func(id uint64) bool { return id != 1 && r.reconciler.isActive(id) })
			}
			for active() {
				r.pass(1)
			}
			for _, id := range test.heard {
				r.mustReceive(message(raftpb.MsgHeartbeatResp, id, r.term))
			}
			r.machine = removedMembers{r.machine, []uint64{test.removed}}
			last := r.last
			r.settle()
			if slices.Contains(test.learners, test.removed) {
				r.acknowledge(test.removed)
				r.pass(commitTicks)
			}
			if proposed := r.last > last; proposed != test.want {
				t.Errorf("%d is removed: %v, want %v", test.removed, proposed, test.want)
			}
		})
	}
}

// A leader that is to be removed transfers leadership to a remaining voter, not to one
// that is to be removed as well. While none is up to date, it goes on leading.
func TestRemoval_LeaderWaitsForSuccessor(t *testing.T) {
	r := newRig(t).follow().lead()
	r.machine = removedMembers{r.machine, []uint64{1, 2}}
	r.pass(2*electionTicks, 2)
	if to := r.node.BasicStatus().LeadTransferee; to != raft.None || r.role.RaftState != raft.StateLeader {
		t.Fatalf("transfers to %d", to)
	}
	r.mustSubmit(command(1))
	if got := commands(r.batches(r.settle())); !slices.Equal(got, []uint64{1}) {
		t.Errorf("proposes %d", got)
	}
	r.pass(1, 2, 3) // heard from, and lagging
	if to := r.node.BasicStatus().LeadTransferee; to != raft.None {
		t.Errorf("transfers to %d, which lags", to)
	}
	r.acknowledge(2, 3)
	r.Tick()
	r.settle()
	if to := r.node.BasicStatus().LeadTransferee; to != 3 {
		t.Errorf("transfers to %d", to)
	}
}

// Nothing can be proposed during a leadership transfer. A removal that was due is
// proposed when the transfer has failed.
func TestRemoval_DuringTransfer(t *testing.T) {
	r := newRig(t).follow().lead()
	r.acknowledge(2, 3)
	r.Transfer(3, make(chan error, 1))
	r.machine = removedMembers{r.machine, []uint64{3}}
	r.mustSubmit(command(1)) // waits as well
	for r.node.BasicStatus().LeadTransferee != raft.None {
		if got := r.changes(r.pass(1, 2)); len(got) > 0 && r.node.BasicStatus().LeadTransferee != raft.None {
			t.Fatalf("%q in the middle of a transfer", got)
		}
	}
	if got := r.Status().Membership.GetVoters(); len(got) != 3 {
		t.Fatalf("voters %d", got)
	}
	if !r.reconciler.changing {
		r.pass(1, 2)
	}
	r.acknowledge(2)
	if got := r.Status().Membership.GetVoters(); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("voters %d", got)
	}
}

// removal returns an entry of term 5 that removes a member.
func removal(index, id uint64) *raftpb.Entry {
	change := &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: &id}}}
	body, err := proto.Marshal(change)
	if err != nil {
		panic(err)
	}
	return data(empty(index, 5), raftpb.EntryConfChangeV2, string(body))
}
