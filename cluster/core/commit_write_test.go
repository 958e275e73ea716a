package core

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/raftlog"
)

// A commit index alone is written with the next entries, or at the next tick: nothing waits
// for it.
func TestCommit_WrittenWithTheNextEntry(t *testing.T) {
	written := func(out Effects) (commit uint64) {
		for _, op := range out.Batch.Ops() {
			if a, ok := op.(raftlog.Append); ok {
				commit = a.HardState.GetCommit()
			}
		}
		return commit
	}
	next := map[string]func(*rig){
		"entry": func(r *rig) {
			r.mustReceive(message(raftpb.MsgApp, 2, 5, following(6, 5, empty(7, 5)), commit(5)))
		},
		"tick":       func(r *rig) { r.Tick() },
		"checkpoint": func(r *rig) { r.Checkpoint() },
	}
	for name, run := range next {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).follow()
			r.Tick()
			r.settle()
			r.mustReceive(message(raftpb.MsgHeartbeat, 2, 5, commit(5)))
			out, err := r.Take(r.at)
			if err != nil || r.applied != 5 {
				t.Fatalf("applied to %d, %v", r.applied, err)
			}
			if !out.Batch.isEmpty() {
				t.Errorf("writes %+v", out.Batch.writes)
			}
			run(r)
			if out, err = r.Take(r.at); err != nil || written(out) != 5 {
				t.Errorf("%v, writes %+v, want commit index 5", err, out.Batch.writes)
			}
		})
	}
}

// What needs no write is answered at once, but not before the write that it depends on.
func TestCommit_AnsweredWithoutWrite(t *testing.T) {
	answers := func(out Effects) bool {
		return slices.ContainsFunc(out.Messages, func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgAppResp })
	}
	r := newRig(t).follow()
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(6, 5), commit(5)))
	out, err := r.Take(r.at)
	if err != nil || !answers(out) || !out.Batch.isEmpty() {
		t.Fatalf("%v, sends %v, writes %+v", err, out.Messages, out.Batch.writes)
	}
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(6, 5, empty(7, 5)), commit(5)))
	out, err = r.Take(r.at)
	if err != nil || answers(out) {
		t.Fatalf("%v, sends %v", err, out.Messages)
	}
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(7, 5), commit(5)))
	if during, err := r.Take(r.at); err != nil || answers(during) {
		t.Errorf("%v, sends %v while entry 7 is being written", err, during.Messages)
	}
	r.persist(out.Batch.writes)
	if out, err = r.Take(r.at); err != nil || !answers(out) {
		t.Errorf("%v, sends %v after it was written", err, out.Messages)
	}
}
