package core

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// An acknowledgement or a vote is sent when it is durable, and not before.
func TestDurable_BeforeAcknowledged(t *testing.T) {
	for name, test := range map[string]struct {
		begin   func(*rig)
		request *raftpb.Message
		promise raftpb.MessageType
	}{
		"entries": {
			func(r *rig) { r.follow() },
			message(raftpb.MsgApp, 2, 5, following(6, 5, empty(7, 5))),
			raftpb.MsgAppResp,
		},
		"a vote": {
			func(r *rig) { r.settle() },
			message(raftpb.MsgVote, 2, 2, following(1, 1)),
			raftpb.MsgVoteResp,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			test.begin(r)
			r.mustReceive(test.request)
			promised := func(m *raftpb.Message) bool { return m.GetType() == test.promise && !m.GetReject() }
			out, err := r.Take(0)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(out.Messages, promised) {
				t.Error("promised before it was written")
			}
			r.persist(out.Batch.writes)
			if !slices.ContainsFunc(r.settle(), promised) {
				t.Error("not promised after it was written")
			}
		})
	}
}

// A leader's own log counts towards the quorum once it is durable, and not before.
func TestDurable_LeaderCountsItsOwnLog(t *testing.T) {
	r := newRig(t).follow().lead()
	r.mustSubmit(&wire.Submission{Incarnation: make([]byte, 16), Calls: []*wire.Call{{Seq: 1}}})
	out, err := r.Take(0)
	if err != nil {
		t.Fatal(err)
	}
	index := r.last
	if index == r.applied {
		t.Fatal("nothing was proposed")
	}
	committed := func() bool { return r.node.BasicStatus().GetCommit() >= index }
	r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(index, 0)))
	if committed() {
		t.Error("committed with one log of three")
	}
	r.persist(out.Batch.writes)
	if r.settle(); !committed() {
		t.Error("not committed with two logs of three")
	}
}

// A member stops at an entry of a newer version, which it could apply differently from
// members that can read it.
func TestEntry_NewerVersionStops(t *testing.T) {
	r := newRig(t).follow()
	e := empty(7, 5)
	e.Data = append(appendEntryHeader(nil), 1)
	e.Data[0] = entryVersion + 1
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(6, 5, e), commit(7)))
	var err error
	for err == nil && r.applied < 7 {
		var out Effects
		if out, err = r.Take(0); err == nil {
			r.persist(out.Batch.writes)
		}
	}
	if !errors.Is(err, ErrUpgradeRequired) {
		t.Errorf("applied %d, %v", r.applied, err)
	}
}

// A leader may have been deposed without knowing it. It reads once a quorum has
// confirmed that it leads.
func TestRead_LeaderNeedsQuorum(t *testing.T) {
	r := newRig(t).follow().lead()
	if err := r.Read(numberedRead(1)); err != nil {
		t.Fatal(err)
	}
	out, err := r.Take(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Reads) > 0 {
		t.Fatal("read without a confirmation by the others")
	}
	asked := slices.IndexFunc(out.Messages, func(m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgHeartbeat && m.GetTo() == 2 && len(m.GetContext()) > 0
	})
	if asked < 0 {
		t.Fatal("the others are not asked")
	}
	r.persist(out.Batch.writes)
	r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term, func(m *raftpb.Message) { m.Context = out.Messages[asked].GetContext() }))
	if out, err = r.Take(0); err != nil || len(out.Reads) != 1 {
		t.Fatalf("%d reads with a majority, %v", len(out.Reads), err)
	}
}

// departed is a machine with given removed members.
type removedMembers struct {
	Machine
	ids []uint64
}

func (l removedMembers) Removed() []uint64 { return l.ids }

// A leader removes other members, and never itself: as the last to know that the change
// committed it transfers leadership, and its successor removes it.
func TestRemoval_LeaderTransfersFirst(t *testing.T) {
	for name, test := range map[string]struct {
		left       uint64
		transferee uint64
		removals   int
	}{
		"another": {3, raft.None, 1},
		"itself":  {1, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).follow().lead()
			r.machine = removedMembers{r.machine, []uint64{test.left}}
			out, err := r.Take(0)
			if err != nil {
				t.Fatal(err)
			}
			removals := 0
			for _, m := range out.Messages {
				if m.GetTo() != 2 {
					continue
				}
				for _, e := range m.GetEntries() {
					if e.GetType() == raftpb.EntryConfChangeV2 {
						removals++
					}
				}
			}
			if got := r.node.BasicStatus().LeadTransferee; got != test.transferee || removals != test.removals {
				t.Errorf("%d removals, transfers to %d; want %d and %d", removals, got, test.removals, test.transferee)
			}
		})
	}
}
