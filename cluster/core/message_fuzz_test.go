package core

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/raftlog"
)

// FuzzReceived: the core does not panic at any sequence of three messages of an
// authenticated peer, as a follower or as the leader.
func FuzzReceived(f *testing.F) {
	for _, test := range hostile {
		body := encoded(f, test.m())
		f.Add(test.leads, body, []byte{}, []byte{})
	}
	for _, m := range []*raftpb.Message{
		message(raftpb.MsgApp, 2, 5, following(6, 5, empty(7, 5), empty(8, 5)), commit(7)),
		message(raftpb.MsgApp, 2, 7, following(4, 5, empty(5, 7)), commit(5)),
		message(raftpb.MsgHeartbeat, 2, 5, commit(6)),
		message(raftpb.MsgVote, 2, 7, following(6, 5)),
		message(raftpb.MsgPreVote, 2, 7, following(6, 5)),
		message(raftpb.MsgTimeoutNow, 2, 5),
		message(raftpb.MsgAppResp, 2, 6, following(7, 0)),
		message(raftpb.MsgReadIndex, 2, 0, entries(data(empty(0, 0), raftpb.EntryNormal, "context"))),
	} {
		body := encoded(f, m)
		f.Add(false, body, body, encoded(f, message(raftpb.MsgHeartbeat, 2, 7, commit(5))))
		f.Add(true, body, body, encoded(f, message(raftpb.MsgHeartbeatResp, 2, 6)))
	}
	f.Fuzz(func(t *testing.T, leads bool, first, second, third []byte) {
		r := newRig(t).inRole(leads)
		for _, body := range [][]byte{first, second, third} {
			m := new(raftpb.Message)
			if len(body) == 0 || proto.Unmarshal(body, m) != nil || reconfigures(m) {
				continue
			}
			m.From, m.To = new(uint64(2)), new(uint64(1))
			if r.Receive(2, m) == nil && !r.settled() {
				return
			}
		}
	})
}

func encoded(f *testing.F, m *raftpb.Message) []byte {
	body, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	return body
}

// reconfigures reports whether a message carries a membership change. Members trust the
// leader's: raft panics at an invalid one, and the member stops.
func reconfigures(m *raftpb.Message) bool {
	for _, e := range m.GetEntries() {
		if e.GetType() != raftpb.EntryNormal {
			return true
		}
	}
	return false
}

// settled is settle for entries that may be invalid. It reports false if applying one has
// stopped the member.
func (r *rig) settled() bool {
	out, err := r.Take(0)
	if err != nil {
		return false
	}
	for _, w := range out.Batch.writes {
		if w.op != nil {
			if err := r.log.Write([]raftlog.Op{w.op}); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if len(out.Batch.writes) == 0 {
		return true
	}
	r.Stored(nil)
	return r.settled()
}
