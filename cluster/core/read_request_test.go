package core

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// readRequest is a member's request for the confirmation of its reads.
func readRequest(from uint64, context string) *raftpb.Message {
	return message(raftpb.MsgReadIndex, from, 0, entries(data(empty(0, 0), raftpb.EntryNormal, context)))
}

// electAlone makes the only voter the leader. The first entry of its term is not durable
// yet; it is part of the returned writes.
func (r *rig) electAlone() (writes []write) {
	r.t.Helper()
	r.CampaignFirst(false)
	for {
		out, err := r.Take(r.at)
		if err != nil {
			r.t.Fatal(err)
		}
		if r.role.RaftState == raft.StateLeader {
			return out.Batch.writes
		}
		r.persist(out.Batch.writes)
	}
}

// A restarted voter may have acknowledged entries that its hard state does not show as
// committed. Even the only voter answers no read before it has applied the first entry
// of its term, neither its own nor that of a standby.
func TestReadIndex_SingleVoterAnswersAfterFirstEntry(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1}, Learners: []uint64{2}})
	first := r.electAlone()
	if err := r.Read(numberedRead(1)); err != nil {
		t.Fatal(err)
	}
	r.mustReceive(readRequest(2, "early"))
	out, err := r.Take(r.at)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Reads) > 0 || len(kinds(out.Messages, raftpb.MsgReadIndexResp)) > 0 {
		t.Fatalf("the first entry of the term is not applied: runs %v, sends %v", out.Reads, out.Messages)
	}
	r.persist(first)
	sent, runs := []*raftpb.Message(nil), 0
	for {
		if out, err = r.Take(r.at); err != nil {
			t.Fatal(err)
		}
		sent, runs = append(sent, out.Messages...), runs+len(out.Reads)
		if out.Batch.isEmpty() {
			break
		}
		r.persist(out.Batch.writes)
	}
	if runs != 1 {
		t.Errorf("%d reads of its own run", runs)
	}
	for _, m := range sent {
		if m.GetType() == raftpb.MsgReadIndexResp && m.GetTo() == 2 && m.GetIndex() == r.applied {
			return
		}
	}
	t.Errorf("the standby's request is not answered: %v", sent)
}

// A leader keeps the latest request of each member until it can answer, and no request
// of another term or of another process than a member's.
func TestReadIndex_EarlyRequests(t *testing.T) {
	r := newRig(t).follow()
	r.elect()
	for _, m := range []*raftpb.Message{readRequest(3, "1"), readRequest(2, "2"), readRequest(3, "3"), readRequest(99, "4")} {
		r.mustReceive(m)
	}
	if n := len(r.reads.early); n != 2 {
		t.Errorf("keeps %d requests of two members", n)
	}
	r.settle()
	r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(r.last, 0)))
	answered := map[string]bool{}
	for _, m := range r.settle() {
		if m.GetType() == raftpb.MsgHeartbeat && m.GetTo() == 2 {
			r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term, func(a *raftpb.Message) { a.Context = m.GetContext() }))
		}
	}
	for _, m := range r.settle() {
		if m.GetType() == raftpb.MsgReadIndexResp {
			answered[string(m.GetEntries()[0].GetData())] = true
		}
	}
	if len(answered) != 2 || !answered["2"] || !answered["3"] {
		t.Errorf("answers %v", answered)
	}
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, r.term+1))
	r.settle()
	r.elect()
	r.mustReceive(readRequest(3, "5"))
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, r.term+1))
	r.settle()
	if len(r.reads.early) > 0 {
		t.Error("a follower keeps requests")
	}
}

// A leader that has been deposed by a message received since the last Take does not
// forward a read either: raft would do so in its sender's name.
func TestReadIndex_DeposedLeaderDoesNotForward(t *testing.T) {
	r := newRig(t).follow().lead()
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, r.term+1))
	r.mustReceive(readRequest(2, "context"))
	for _, m := range r.settle() {
		if m.GetFrom() != 1 || m.GetType() == raftpb.MsgReadIndex {
			t.Errorf("sends %v", m)
		}
	}
}

// confirm has member 2 respond to the heartbeats among messages, and returns what is sent
// then.
func (r *rig) confirm(messages []*raftpb.Message) []*raftpb.Message {
	r.t.Helper()
	for _, m := range messages {
		if m.GetType() == raftpb.MsgHeartbeat && m.GetTo() == 2 {
			r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term, func(a *raftpb.Message) { a.Context = m.GetContext() }))
		}
	}
	return r.settle()
}

// A member that repeats another's context suppresses neither that one's request nor the
// leader's own.
func TestReadIndex_ContextOfAnotherMember(t *testing.T) {
	r := newRig(t).follow().lead()
	if err := r.Read(numberedRead(1)); err != nil {
		t.Fatal(err)
	}
	r.reads.requestReads()
	own := string(r.reads.context())
	for _, m := range []*raftpb.Message{readRequest(3, own), readRequest(3, "2's"), readRequest(2, "2's")} {
		r.mustReceive(m)
	}
	answered := map[uint64][]string{}
	for _, m := range r.confirm(r.settle()) {
		if m.GetType() == raftpb.MsgReadIndexResp {
			answered[m.GetTo()] = append(answered[m.GetTo()], string(m.GetEntries()[0].GetData()))
		}
	}
	if len(answered) != 2 || !slices.Equal(answered[2], []string{"2's"}) || !slices.Equal(answered[3], []string{own, "2's"}) {
		t.Errorf("answers %v", answered)
	}
	if len(r.reads.inFlight) > 0 {
		t.Error("its own read is not confirmed")
	}
}

// A peer confirms requests only after it was asked to: a confirmation in advance would let
// a partitioned leader answer with an older state.
func TestReadIndex_ConfirmationInAdvance(t *testing.T) {
	r := newRig(t).follow().lead()
	number := func(n byte) *raftpb.Message {
		return message(raftpb.MsgHeartbeatResp, 2, r.term, func(m *raftpb.Message) { m.Context = []byte{n, 0, 0, 0, 0, 0, 0, 0} })
	}
	r.mustReceive(readRequest(3, "first"))
	r.settle()
	if err := r.Receive(2, number(2)); !errors.Is(err, ErrInadmissible) {
		t.Errorf("the second request is confirmed with the first: %v", err)
	}
	r.mustReceive(number(1))
	if to := kinds(r.settle(), raftpb.MsgReadIndexResp); len(to) != 1 {
		t.Errorf("answers to %v", to)
	}
	r.mustReceive(readRequest(3, "second"))
	if to := kinds(r.settle(), raftpb.MsgReadIndexResp); len(to) > 0 {
		t.Errorf("answers to %v without a quorum", to)
	}
	late := number(2)
	former := r.term
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, former+1))
	r.settle()
	r.elect()
	late.Term = new(former)
	r.mustReceive(late) // of the former term
}

// A member that does not lead cannot confirm a read, neither in this term nor in a later
// one.
func TestReadIndex_AnswerOfNoLeader(t *testing.T) {
	for _, test := range []struct {
		from, term uint64
		confirmed  bool
	}{{2, 5, true}, {3, 5, false}, {3, 6, false}, {2, 6, false}, {3, 4, false}} {
		r := newRig(t).follow() // member 2, in term 5
		if err := r.Read(numberedRead(1)); err != nil {
			t.Fatal(err)
		}
		r.reads.requestReads()
		context := string(r.reads.context())
		r.mustReceive(message(raftpb.MsgReadIndexResp, test.from, test.term, following(6, 0, data(empty(0, 0), raftpb.EntryNormal, context))))
		r.settle()
		if confirmed := len(r.reads.inFlight) == 0; confirmed != test.confirmed {
			t.Errorf("confirmed by member %d in term %d: %t", test.from, test.term, confirmed)
		}
	}
}
