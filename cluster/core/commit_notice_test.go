package core

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine"
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
	op, ok := w.op.(raftlog.Checkpoint)
	return ok && op.ConfState != nil
}

// A member that is demoted learns of the commit once a majority of the voters that remain
// knows of it durably, or else they could need its vote. Nor is the next change proposed
// before that.
func TestRemoval_CommitToldWhenSettled(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4}}).follow()
	r.ignore(r.node.Campaign())
	for !r.Status().Proposing {
		for _, m := range r.settle() {
			switch m.GetType() {
			case raftpb.MsgPreVote:
				r.mustReceive(message(raftpb.MsgPreVoteResp, m.GetTo(), m.GetTerm()))
			case raftpb.MsgVote:
				r.mustReceive(message(raftpb.MsgVoteResp, m.GetTo(), m.GetTerm()))
			}
		}
		if r.role.RaftState == raft.StateLeader {
			r.acknowledge(2, 3, 4)
		}
	}
	r.machine = removedMembers{r.machine, []uint64{4}}
	r.settle()
	change := r.last
	told := func(messages []*raftpb.Message) map[uint64]uint64 {
		commits := make(map[uint64]uint64)
		for _, m := range messages {
			commits[m.GetTo()] = max(commits[m.GetTo()], m.GetCommit())
		}
		return commits
	}
	sent := r.acknowledge(2, 4) // commits it; member 3 has not acknowledged
	r.mustSubmit(command(1))
	sent = append(sent, r.pass(3, 2, 3, 4)...)
	if got := told(sent); got[2] < change || got[4] >= change {
		t.Fatalf("members were told of commits %v, the demotion is %d", got, change)
	}
	snapshot := &raftpb.Message{Type: raftpb.MsgSnap.Enum(), To: new(uint64(4)), From: new(uint64(1)), Term: new(r.term),
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &change, Term: new(r.term)}}}
	r.send(snapshot)
	if out := r.effects(); len(out.Snapshots) > 0 {
		t.Error("the demoted member gets a snapshot of the change")
	}
	r.acknowledge(4) // not a voter any more
	if got := told(r.pass(3, 2, 3, 4)); got[4] >= change {
		t.Fatal("the demoted member itself settles its demotion")
	}
	r.machine = removedMembers{r.machine, []uint64{2, 4}}
	if early := r.changes(r.pass(3, 2, 3, 4)); len(early) > 0 {
		t.Fatalf("%q is proposed before the demotion is settled", early)
	}
	r.acknowledge(3)
	if got := told(r.pass(2, 2, 3, 4)); got[4] < change {
		t.Fatal("the demoted member is never told")
	}
}

// A leader of a later term settles the last change of its log as well.
func TestRemoval_CommitToldWhenSettledByNextLeader(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}})
	demotion := &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(4))}}}
	data, err := proto.Marshal(demotion)
	if err != nil {
		t.Fatal(err)
	}
	entry := &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Index: new(uint64(2)), Term: new(uint64(5)), Data: data}
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(1, 1, entry), commit(1)))
	r.settle()
	r.elect()
	sent := append(r.settle(), r.acknowledge(2)...)
	if r.applied < 3 {
		t.Fatalf("applied %d", r.applied)
	}
	for _, m := range append(sent, r.pass(3, 4)...) {
		if m.GetTo() == 4 && m.GetCommit() >= 2 {
			t.Fatalf("%v tells a standby of the change", m)
		}
	}
	if r.last <= 3 {
		t.Fatal("nothing is proposed to settle the change")
	}
	r.acknowledge(2)
	told := uint64(0)
	for _, m := range r.pass(2, 4) {
		if m.GetTo() == 4 {
			told = max(told, m.GetCommit())
		}
	}
	r.mustReceive(message(raftpb.MsgAppResp, 4, r.term, following(r.last, 0)))
	for _, m := range r.pass(2, 4) {
		if m.GetTo() == 4 {
			told = max(told, m.GetCommit())
		}
	}
	if told < 2 {
		t.Error("the standby is never told")
	}
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
		do            func()
		log           []uint64
		pending, last uint64
	}{
		{func() { c.appended(entries(5, false, true, true)) }, []uint64{6, 7}, 6, 7},
		{func() { c.appended(nil) }, []uint64{6, 7}, 6, 7},
		{func() { c.appended(entries(7, false, true)) }, []uint64{6, 8}, 6, 8},
		{func() { c.stored(raftlog.Append{}) }, []uint64{6, 8}, 6, 8},
		{func() { c.stored(raftlog.Checkpoint{Index: 6}) }, []uint64{6, 8}, 8, 8},
		{func() { c.appended(entries(8, false, false)) }, []uint64{6}, 0, 6},
		{func() { c.appended(entries(10, true)) }, []uint64{6, 10}, 10, 10},
		{func() { c.stored(raftlog.Checkpoint{Index: 10}) }, []uint64{10}, 0, 10},
		{func() { c.replaced(12) }, []uint64{12}, 12, 12},
		{func() { c.appended(entries(13, true)) }, []uint64{12, 13}, 12, 13},
		{func() { c.stored(raftlog.Install{Index: 12}) }, []uint64{12, 13}, 13, 13},
		{func() { c.stored(raftlog.Checkpoint{Index: 13}) }, []uint64{13}, 0, 13},
	} {
		if step.do(); !slices.Equal(c.log, step.log) || c.pending() != step.pending || c.last() != step.last {
			t.Errorf("%v, want %v", c, step)
		}
	}
}

// addsStandby returns an entry that adds a standby.
func addsStandby(t *testing.T, index, term, id uint64) *raftpb.Entry {
	t.Helper()
	change := &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: &id}}}
	data, err := proto.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	return &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Index: &index, Term: &term, Data: data}
}

// A member has two changes in its log, knows that the first is committed, and has not
// applied that durably when it is elected: its disk is slower than the election. What it
// sends with the second change tells that the first is committed (rule 3), or else its
// receiver could be a candidate two changes behind.
func TestRemoval_SecondChangeTellsOfFirstCommit(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(1, 1, addsStandby(t, 2, 5, 4)), commit(1)))
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(2, 5, addsStandby(t, 3, 5, 5)), commit(2)))
	for { // durable, except that the first change is applied
		out, err := r.Take(r.at)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Batch.writes) == 0 {
			break
		}
		for _, w := range out.Batch.writes {
			if _, applies := w.op.(raftlog.Checkpoint); w.op != nil && !applies {
				if err := r.log.Write([]raftlog.Op{w.op}); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.disk.batch = nil
	}
	r.open()
	r.start() // after a power loss
	if hard, _, _ := r.log.InitialState(); hard.GetCommit() != 2 || r.log.Applied().Index != 1 {
		t.Fatalf("commit %d, applied %d", hard.GetCommit(), r.log.Applied().Index)
	}
	sent := r.electWithoutDisk()
	term := r.node.BasicStatus().GetTerm()
	r.mustReceive(message(raftpb.MsgAppResp, 3, term, func(m *raftpb.Message) { // member 3 has neither change
		m.Index, m.Reject, m.RejectHint, m.LogTerm = new(uint64(3)), new(true), new(uint64(1)), new(uint64(1))
	}))
	carried := false
	for _, m := range append(sent, r.takeOnly()...) {
		for _, e := range m.GetEntries() {
			if e.GetIndex() == 3 {
				if carried = true; m.GetCommit() < 2 {
					t.Errorf("%v carries the second change and tells of commit %d only", m, m.GetCommit())
				}
			}
		}
	}
	if !carried {
		t.Error("the change is not sent")
	}
}

// While a snapshot is being installed, raft accepts entries that follow it. A change among
// them is known when the installation is durable.
func TestChanges_AppendedWhileInstalling(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}}).follow()
	answer := errUnanswered
	r.ReceiveSnapshot(2, snapshotMessage(50), r.stage(&answer))
	out, err := r.Take(r.at)
	if err != nil {
		t.Fatal(err)
	}
	// The next leader appends to it.
	r.mustReceive(message(raftpb.MsgApp, 3, 6, following(50, 5, addsStandby(t, 51, 6, 4)), commit(50)))
	if _, err := r.Take(r.at); err != nil {
		t.Fatal(err)
	}
	for _, w := range out.Batch.writes {
		if w.op != nil {
			if err := r.log.Write([]raftlog.Op{w.op}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Stored(machine.New())
	if r.notices.changes.pending() != 51 || r.notices.changes.last() != 51 {
		t.Errorf("the change at 51 is forgotten: pending %d, last %d", r.notices.changes.pending(), r.notices.changes.last())
	}
}

// takeOnly takes effects once; the disk completes nothing.
func (r *rig) takeOnly() []*raftpb.Message {
	r.t.Helper()
	out, err := r.Take(r.at)
	if err != nil {
		r.t.Fatal(err)
	}
	return out.Messages
}

// electWithoutDisk has members 2 and 3 elect the core while its disk completes nothing. It
// returns what the leader sends first.
func (r *rig) electWithoutDisk() []*raftpb.Message {
	r.t.Helper()
	r.takeOnly()
	r.ignore(r.node.Campaign())
	r.takeOnly()
	for _, id := range []uint64{2, 3} {
		r.mustReceive(message(raftpb.MsgPreVoteResp, id, r.term+1))
	}
	r.takeOnly()
	for _, id := range []uint64{2, 3} {
		r.mustReceive(message(raftpb.MsgVoteResp, id, r.node.BasicStatus().GetTerm()))
	}
	sent := r.takeOnly()
	if !r.isLeader() {
		r.t.Fatal("not elected")
	}
	return sent
}
