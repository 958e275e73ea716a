package core

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func TestReported_OfLeaderOnly(t *testing.T) {
	t.Parallel()
	const a, b = 1, 2
	message := func(kind raftpb.MessageType, from, term, commit uint64) *raftpb.Message {
		return &raftpb.Message{Type: new(kind), From: new(from), Term: new(term), Commit: new(commit)}
	}
	var reported reported
	want := func(leader, term, commit, times uint64) {
		t.Helper()
		if got := reported.by(leader, term); got != commit || reported.times != times {
			t.Fatalf("member %d in term %d has reported %d, %d times in all; want %d, %d", leader, term, got, reported.times, commit, times)
		}
	}
	reported.append(message(raftpb.MsgHeartbeat, a, 5, 90))
	want(a, 5, 0, 0)
	reported.append(message(raftpb.MsgApp, a, 5, 100))
	reported.append(message(raftpb.MsgApp, a, 5, 90)) // sent again
	want(a, 5, 100, 2)
	want(b, 5, 0, 2)
	want(a, 6, 0, 2)
	reported.append(message(raftpb.MsgApp, b, 4, 200)) // of a former leader
	want(a, 5, 100, 2)
	reported.append(message(raftpb.MsgApp, b, 6, 70))
	want(b, 6, 70, 3)
}
