package core

import (
	"errors"
	"math"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func entries(list ...*raftpb.Entry) func(*raftpb.Message) {
	return func(m *raftpb.Message) { m.Entries = list }
}

func data(e *raftpb.Entry, kind raftpb.EntryType, data string) *raftpb.Entry {
	e.Type, e.Data = kind.Enum(), []byte(data)
	return e
}

// hostile are messages that no correct member sends. panics: raft panics at the message,
// so that without the check one peer could stop the others.
var hostile = []struct {
	name   string
	leads  bool // the receiver
	panics bool
	m      func() *raftpb.Message
}{
	{"a proposal", true, false, func() *raftpb.Message {
		return message(raftpb.MsgProp, 2, 0, entries(data(empty(0, 0), raftpb.EntryNormal, "x")))
	}},
	{"an empty proposal", true, true, func() *raftpb.Message { return message(raftpb.MsgProp, 2, 0) }},
	{"a proposal of a malformed membership change", true, true, func() *raftpb.Message {
		return message(raftpb.MsgProp, 2, 0, entries(data(empty(0, 0), raftpb.EntryConfChange, "\xff\xff")))
	}},
	{"a malformed membership change", false, false, func() *raftpb.Message {
		return message(raftpb.MsgApp, 2, 5, following(6, 5, data(empty(7, 5), raftpb.EntryConfChangeV2, "\xff\xff")), commit(7))
	}},
	{"an entry of an unknown type", false, false, func() *raftpb.Message {
		return message(raftpb.MsgApp, 2, 5, following(6, 5, data(empty(7, 5), 9, "")), commit(7))
	}},
	{"a heartbeat with a commit beyond the log", false, true, func() *raftpb.Message {
		return message(raftpb.MsgHeartbeat, 2, 5, commit(7))
	}},
	{"an append with a gap", false, true, func() *raftpb.Message {
		return message(raftpb.MsgApp, 2, 5, following(6, 5, empty(7, 5), empty(9, 5)), commit(9))
	}},
	{"an append of an earlier index", false, true, func() *raftpb.Message {
		return message(raftpb.MsgApp, 2, 5, following(6, 5, empty(2, 6)))
	}},
	{"an append with decreasing terms", false, false, func() *raftpb.Message {
		return message(raftpb.MsgApp, 2, 7, following(6, 5, empty(7, 7), empty(8, 6)))
	}},
	{"an append with an entry of a later term", false, false, func() *raftpb.Message {
		return message(raftpb.MsgApp, 2, 5, following(6, 5, empty(7, 6)))
	}},
	{"an append behind the largest index", false, false, func() *raftpb.Message {
		return message(raftpb.MsgApp, 2, 5, following(math.MaxUint64, 5, empty(0, 5)))
	}},
	{"an append without a term", false, false, func() *raftpb.Message {
		return message(raftpb.MsgApp, 2, 0, following(6, 5))
	}},
	{"the largest term", false, false, func() *raftpb.Message {
		return message(raftpb.MsgHeartbeat, 2, math.MaxUint64)
	}},
	{"a term too far ahead", false, false, func() *raftpb.Message {
		return message(raftpb.MsgHeartbeat, 2, 5+maxTermStep+1)
	}},
	{"a vote in the largest term", false, false, func() *raftpb.Message {
		return message(raftpb.MsgVote, 2, math.MaxUint64, following(100, 100))
	}},
	{"a vote without a term", false, false, func() *raftpb.Message {
		return message(raftpb.MsgVote, 2, 0, following(100, 100))
	}},
	{"in another member's name", false, false, func() *raftpb.Message { return message(raftpb.MsgHeartbeat, 3, 5) }},
	{"in the receiver's name", true, false, func() *raftpb.Message { return message(raftpb.MsgHeartbeatResp, 1, 6) }},
	{"to another member", false, false, func() *raftpb.Message {
		m := message(raftpb.MsgHeartbeat, 2, 5)
		m.To = new(uint64(3))
		return m
	}},
	{"an acknowledgement beyond the log", true, false, func() *raftpb.Message {
		return message(raftpb.MsgAppResp, 2, 6, following(100, 0))
	}},
	{"a read without entries", true, false, func() *raftpb.Message { return message(raftpb.MsgReadIndex, 2, 0) }},
	{"a read without a context", true, false, func() *raftpb.Message {
		return message(raftpb.MsgReadIndex, 2, 0, entries(empty(0, 0)))
	}},
	{"a read with a term", false, true, func() *raftpb.Message {
		return message(raftpb.MsgReadIndex, 2, 5, entries(data(empty(0, 0), raftpb.EntryNormal, "context")))
	}},
	{"a confirmation of reads by less than a number", true, true, func() *raftpb.Message {
		return message(raftpb.MsgHeartbeatResp, 2, 6, func(m *raftpb.Message) { m.Context = []byte("abc") })
	}},
	{"a confirmation of reads that are not requested yet", true, false, func() *raftpb.Message {
		return message(raftpb.MsgHeartbeatResp, 2, 6, func(m *raftpb.Message) { m.Context = []byte{1, 0, 0, 0, 0, 0, 0, 0} })
	}},
	{"an answer to no read", false, false, func() *raftpb.Message { return message(raftpb.MsgReadIndexResp, 2, 5) }},
	{"a write's response", false, false, func() *raftpb.Message {
		return message(raftpb.MsgStorageAppendResp, 2, 5, following(6, 5))
	}},
	{"a write", false, false, func() *raftpb.Message { return message(raftpb.MsgStorageAppend, 2, 5) }},
	{"an application's response", false, false, func() *raftpb.Message {
		return message(raftpb.MsgStorageApplyResp, 2, 5, entries(empty(6, 5)))
	}},
	{"an order to campaign", false, false, func() *raftpb.Message { return message(raftpb.MsgHup, 2, 5) }},
	{"a leader's own heartbeat", true, false, func() *raftpb.Message { return message(raftpb.MsgBeat, 2, 6) }},
	{"an order to forget the leader", false, false, func() *raftpb.Message { return message(raftpb.MsgForgetLeader, 2, 5) }},
	{"a report on a third member", true, false, func() *raftpb.Message { return message(raftpb.MsgUnreachable, 2, 6) }},
	{"a report on a snapshot", true, false, func() *raftpb.Message { return message(raftpb.MsgSnapStatus, 2, 6) }},
	{"a leadership transfer", true, false, func() *raftpb.Message { return message(raftpb.MsgTransferLeader, 2, 6) }},
	{"an unknown type", false, false, func() *raftpb.Message { return message(99, 2, 5) }},
	{"a snapshot outside of a snapshot stream", false, false, func() *raftpb.Message { return snapshotMessage(50) }},
	{"a snapshot in a heartbeat", false, false, func() *raftpb.Message {
		m := snapshotMessage(50)
		m.Type = raftpb.MsgHeartbeat.Enum()
		return m
	}},
	{"a heartbeat with responses", false, false, func() *raftpb.Message {
		m := message(raftpb.MsgHeartbeat, 2, 5)
		m.Responses = []*raftpb.Message{message(raftpb.MsgVoteResp, 1, 5)}
		return m
	}},
}

func snapshotMessage(index uint64) *raftpb.Message {
	return message(raftpb.MsgSnap, 2, 5, func(m *raftpb.Message) {
		m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(index), Term: new(uint64(5)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}},
		}}
	})
}

func (r *rig) inRole(leader bool) *rig {
	r.follow()
	if leader {
		r.lead()
	}
	return r
}

// A hostile message is refused and changes nothing.
func TestReceive_HostileMessageRefused(t *testing.T) {
	for _, test := range hostile {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t).inRole(test.leads)
			before := r.node.BasicStatus()
			if err := r.Receive(2, test.m()); !errors.Is(err, ErrInadmissible) && !errors.Is(err, ErrForgot) {
				t.Errorf("admitted: %v", err)
			}
			if sent := r.settle(); len(sent) > 0 {
				t.Errorf("answered with %v", sent)
			}
			if after := r.node.BasicStatus(); after.SoftState != before.SoftState || after.GetTerm() != before.GetTerm() || after.GetCommit() != before.GetCommit() {
				t.Errorf("%+v became %+v", before, after)
			}
		})
	}
}

// The check is needed: raft panics at these messages.
func TestReceive_RaftPanicsWithoutCheck(t *testing.T) {
	for _, test := range hostile {
		if !test.panics {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t).inRole(test.leads)
			defer func() {
				if recover() == nil {
					t.Error("raft did not panic: is the check still needed?")
				}
			}()
			r.step(test.m())
			r.settle()
		})
	}
}

// What correct members send is admitted.
func TestReceive_OrdinaryMessageAdmitted(t *testing.T) {
	for _, test := range []struct {
		name  string
		leads bool
		m     *raftpb.Message
	}{
		{"an append", false, message(raftpb.MsgApp, 2, 5, following(6, 5, empty(7, 5)), commit(7))},
		{"an append that replaces", false, message(raftpb.MsgApp, 3, 7, following(4, 5, empty(5, 7)), commit(4))},
		{"an append far ahead", false, message(raftpb.MsgApp, 2, 5, following(100, 5, empty(101, 5)), commit(100))},
		{"an append of a membership change", false, message(raftpb.MsgApp, 2, 5, following(6, 5, removal(7, 3)), commit(7))},
		{"a heartbeat", false, message(raftpb.MsgHeartbeat, 2, 5, commit(6))},
		{"a late heartbeat", false, message(raftpb.MsgHeartbeat, 3, 4, commit(2))},
		{"a pre-vote", false, message(raftpb.MsgPreVote, 3, 6, following(6, 5))},
		{"a vote", false, message(raftpb.MsgVote, 3, 6, following(6, 5))},
		{"a request to campaign now", false, message(raftpb.MsgTimeoutNow, 2, 5)},
		{"the answer to a read", false, message(raftpb.MsgReadIndexResp, 2, 5, following(6, 0, data(empty(0, 0), raftpb.EntryNormal, "context")))},
		{"an acknowledgement", true, message(raftpb.MsgAppResp, 2, 6, following(7, 0))},
		{"the answer to a heartbeat", true, message(raftpb.MsgHeartbeatResp, 2, 6)},
		{"a read", true, message(raftpb.MsgReadIndex, 2, 0, entries(data(empty(0, 0), raftpb.EntryNormal, "context")))},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t).inRole(test.leads)
			r.mustReceive(test.m)
			r.settle()
		})
	}
}

// A leader answers a follower's read once a quorum has confirmed that it leads.
func TestReadIndex_LeaderConfirmsWithQuorum(t *testing.T) {
	r := newRig(t).follow().lead()
	r.mustReceive(message(raftpb.MsgReadIndex, 3, 0, entries(data(empty(0, 0), raftpb.EntryNormal, "context"))))
	for _, m := range r.settle() {
		if m.GetType() == raftpb.MsgHeartbeat && m.GetTo() == 2 {
			r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term, func(a *raftpb.Message) { a.Context = m.GetContext() }))
		}
	}
	sent := r.settle()
	if to := kinds(sent, raftpb.MsgReadIndexResp); len(to) != 1 || to[0] != 3 || sent[0].GetIndex() != r.applied {
		t.Errorf("sends %v", sent)
	}
}

// A follower does not forward a read: raft would do so in its sender's name.
func TestReadIndex_FollowerDoesNotForward(t *testing.T) {
	r := newRig(t).follow()
	r.mustReceive(message(raftpb.MsgReadIndex, 3, 0, entries(data(empty(0, 0), raftpb.EntryNormal, "context"))))
	if sent := r.settle(); len(sent) > 0 {
		t.Errorf("sends %v", sent)
	}
}
