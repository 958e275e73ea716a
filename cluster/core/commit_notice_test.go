package core

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/raftlog"
)

// The leader of two voters, one of which leaves, tells of the demotion's commit when it
// has applied it durably, so that it leads alone after a crash.
func TestRemoval_CommitToldWhenDurable(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2}}).follow().lead()
	r.acknowledge(2)
	r.machine = removedMembers{r.machine, []uint64{2}}
	if got := r.changes(r.settle()); !slices.Equal(got, []string{demotes(2)}) {
		t.Fatal(got)
	}
	change := r.last
	told := func(messages []*raftpb.Message) (commit uint64) {
		for _, m := range messages {
			commit = max(commit, m.GetCommit())
		}
		return commit
	}
	r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(change, 0)))
	var held []write
	for held == nil {
		out, err := r.Take(r.at)
		if err != nil {
			t.Fatal(err)
		}
		if told(out.Messages) >= change {
			t.Fatal("the commit is told before it is applied")
		}
		if slices.ContainsFunc(out.Batch.writes, appliesChange) {
			held = out.Batch.writes
		} else {
			r.persist(out.Batch.writes)
		}
	}
	for range 3 {
		r.Tick()
		out, err := r.Take(r.at)
		if err != nil {
			t.Fatal(err)
		}
		if told(out.Messages) >= change {
			t.Fatal("the commit is told before it is durably applied")
		}
	}
	r.persist(held)
	if told(r.pass(1, 2)) < change {
		t.Error("the commit is never told")
	}
}

// A member that starts again knows of the changes in its log that it has not applied, and
// tells of their commit no earlier.
func TestRemoval_CommitToldWhenDurableAfterRestart(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2}}).follow().lead()
	r.acknowledge(2)
	r.machine = removedMembers{r.machine, []uint64{2}}
	r.settle()
	change := r.last
	r.open()
	r.start()
	r.elect()
	for {
		out, err := r.Take(r.at)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Messages {
			if m.GetCommit() >= change {
				t.Fatal("the commit is told before it is durably applied")
			}
		}
		if slices.ContainsFunc(out.Batch.writes, appliesChange) {
			return
		}
		r.persist(out.Batch.writes)
		r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(r.last, 0)))
	}
}

func appliesChange(w write) bool {
	op, ok := w.op.(raftlog.Apply)
	return ok && op.ConfState != nil
}

// The changes that are not durably applied follow what the log contains.
func TestChanges_FollowLog(t *testing.T) {
	entries := func(first uint64, changes ...bool) (all []*raftpb.Entry) {
		for i, change := range changes {
			index, kind := first+uint64(i), raftpb.EntryNormal
			if change {
				kind = raftpb.EntryConfChangeV2
			}
			all = append(all, &raftpb.Entry{Index: &index, Type: &kind})
		}
		return all
	}
	var c changes
	for _, step := range []struct {
		do   func()
		want []uint64
	}{
		{func() { c.appended(entries(5, false, true, true)) }, []uint64{6, 7}},
		{func() { c.appended(nil) }, []uint64{6, 7}},
		{func() { c.appended(entries(7, false, true)) }, []uint64{6, 8}},
		{func() { c.stored(raftlog.Append{}) }, []uint64{6, 8}},
		{func() { c.stored(raftlog.Apply{Index: 6}) }, []uint64{8}},
		{func() { c.stored(raftlog.Install{Index: 9}) }, nil},
	} {
		if step.do(); !slices.Equal(c, step.want) {
			t.Errorf("%v, want %v", c, step.want)
		}
	}
}
