package core

import (
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// sentToStandby has the leader send what it has to say to standby 4, which asks for what it lacks, and
// returns the largest commit index that it sends.
func (r *rig) sentToStandby(sent ...*raftpb.Message) (commit uint64) {
	r.t.Helper()
	sent = append(sent, r.pass(3, 2)...)
	r.mustReceive(message(raftpb.MsgAppResp, 4, r.term, func(m *raftpb.Message) { m.Index = new(r.applied) }))
	for _, m := range append(sent, r.pass(3, 2)...) {
		if m.GetTo() == 4 {
			commit = max(commit, m.GetCommit())
		}
	}
	return commit
}

// A voter has a demotion by a snapshot only, or only in what is truncated, and is elected. It
// notifies the demoted member once a majority of the voters has acknowledged an entry of its own.
func TestRemoval_CommitToldWhenSettledWithoutChangeInLog(t *testing.T) {
	for name, restart := range map[string]bool{"after a snapshot": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4}}).follow()
			m := snapshotMessage(50)
			m.Snapshot.Metadata.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}
			answer := errUnanswered
			r.ReceiveSnapshot(2, m, r.stage(&answer))
			r.install()
			if r.settle(); restart {
				r.open()
				r.start()
			}
			r.elect()
			if r.notices.settled() || r.Status().Settled {
				t.Error("the leader takes the demotion for settled")
			}
			if sent := r.sentToStandby(r.settle()...); sent >= 50 {
				t.Errorf("the demoted member is notified of commit %d before a voter has acknowledged an entry", sent)
			}
			r.acknowledge(2) // commits the term's first entry
			r.acknowledge(2) // and settles the change
			if sent := r.sentToStandby(); sent < 50 || !r.notices.settled() {
				t.Errorf("the demoted member is notified of commit %d, settled: %t", sent, r.notices.settled())
			}
		})
	}
}

// install has the disk install the snapshot that is staged.
func (r *rig) install() {
	r.t.Helper()
	out, err := r.Take(r.at)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.log.Write(out.Batch.Ops()); err != nil {
		r.t.Fatal(err)
	}
	r.Stored(machine.New())
}

// The log of a new group begins behind a membership that each founder has: there is nothing to
// settle.
func TestChanges_NoneInNewGroup(t *testing.T) {
	r := newRig(t)
	r.elect()
	r.settle()
	if r.notices.changes.last() != 0 || !r.notices.settled() {
		t.Errorf("%+v, settled: %t", r.notices.changes, r.notices.settled())
	}
}

// A snapshot that shows a change which is being synced is not confirmed, whichever voters
// agree and however long it waits, until the change is durable.
func TestConfirmSnapshot_UnsyncedChange(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}}).follow().lead()
	r.acknowledge(2, 3)
	r.machine = removedMembers{r.machine, []uint64{3}}
	r.settle()
	change := r.changesOf().last()
	if change != r.last {
		t.Fatalf("the last change is %d, of %d entries", change, r.last)
	}
	r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(change, 0)))
	var applying []write
	for !slices.ContainsFunc(applying, appliesChange) {
		r.persist(applying)
		out, err := r.Take(r.at)
		if err != nil {
			t.Fatal(err)
		}
		if applying = out.Batch.writes; len(applying) == 0 {
			t.Fatal("the change is not applied")
		}
	}
	confirmed := map[uint64]error{}
	confirm := func(peer, index uint64) {
		confirmed[peer] = errUnanswered
		r.ConfirmSnapshot(peer, index, func(err error) { confirmed[peer] = err })
	}
	confirm(2, change)
	confirm(3, change-1)
	r.claim(change, 0, 2, 3) // a majority agrees
	for range 2 * confirmationElections * electionTicks {
		r.Tick()
		r.takeOnly()
		for _, id := range []uint64{2, 3} {
			r.mustReceive(message(raftpb.MsgHeartbeatResp, id, r.term))
		}
	}
	if !r.isLeader() || confirmed[2] == nil {
		t.Errorf("leads: %t; the snapshot with the change: %v", r.isLeader(), confirmed[2])
	}
	if confirmed[3] != nil {
		t.Errorf("the one without it: %v", confirmed[3])
	}
	r.persist(applying)
	if r.settle(); confirmed[2] != nil {
		t.Errorf("the snapshot with the change, once that is durable: %v", confirmed[2])
	}
}

// Of six voters member 6 leaves. Voters 3, 4 and 5 lose power once, before the change is
// applied on their disks; 1 and 2, of the five voters that remain, are lost permanently. Before
// it was lost, 2 had the change by a snapshot of 1 and led. The three voters of five go on.
func TestRemoval_LeaderBySnapshotLost(t *testing.T) {
	v := newCores(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4, 5, 6}})
	between := func(id uint64) func(*raftpb.Message) bool {
		return func(m *raftpb.Message) bool { return m.GetFrom() == id || m.GetTo() == id }
	}
	v.lost = between(2)
	one, two := v.all[1], v.all[2]
	one.ignore(one.node.Campaign())
	v.run()
	if v.tick(3, 1, 3, 4, 5, 6); !v.leads(1) {
		t.Fatal("no leader")
	}
	change := one.last + 1
	v.lost = func(m *raftpb.Message) bool { // nothing settles the change
		return between(2)(m) || m.GetFrom() == 1 && slices.ContainsFunc(m.GetEntries(), func(e *raftpb.Entry) bool { return e.GetIndex() > change })
	}
	v.slow = func(id uint64, w []write) bool { return 3 <= id && id <= 5 && slices.ContainsFunc(w, appliesChange) }
	one.machine = removedMembers{one.machine, []uint64{6}}
	v.tick(2, 1)
	v.snapshot(one, two, change)
	delete(v.all, 1)
	v.slow = nil
	for _, id := range []uint64{3, 4, 5} {
		delete(v.held, id)
		v.all[id].open()
		v.all[id].start(func(c *Config) { c.ID, c.Incarnation, c.Rand = id, wire.ID{byte(id), 2}, rand.New(rand.NewPCG(id, 2)) })
	}
	v.lost = func(m *raftpb.Message) bool { // what the leader 2 sends gets to 6 only
		return m.GetFrom() == 2 && m.GetTo() != 6 && (m.GetType() == raftpb.MsgApp || m.GetType() == raftpb.MsgHeartbeat)
	}
	v.tick(2*electionTicks, 3, 4, 5) // the leases of the former leader end
	for n := 0; n < 50*electionTicks && !v.leads(2); n++ {
		v.tick(1, 2)
	}
	if !v.leads(2) {
		t.Fatal("2 is not elected")
	}
	v.tick(3, 2)
	if got := v.all[6].applied; got >= change {
		t.Errorf("member 6 has applied entry %d; its removal is at %d and not settled", got, change)
	}
	delete(v.all, 2)
	v.lost = nil
	left := []uint64{3, 4, 5, 6}
	for n := 0; n < 100*electionTicks && !slices.ContainsFunc(left, v.leads); n++ {
		v.tick(1, left...)
	}
	if !slices.ContainsFunc(left, v.leads) {
		t.Error("no leader in 100 election timeouts, with three of five voters up")
	}
}

// snapshot has one member confirm a snapshot of its state at index, and another install it.
func (v *cores) snapshot(from, to *rig, index uint64) {
	v.t.Helper()
	confirmed, installed := errUnanswered, errUnanswered
	from.ConfirmSnapshot(to.id, index, func(err error) { confirmed = err })
	v.tick(1, from.id)
	if at, digest := from.Digest(); confirmed == nil && at == index {
		s := to.stage(&installed)
		s.Digest = digest
		term, _ := from.log.Term(index)
		to.ReceiveSnapshot(from.id, &raftpb.Message{
			Type: raftpb.MsgSnap.Enum(), From: new(from.id), To: new(to.id), Term: new(from.term),
			Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: from.conf}},
		}, s)
		to.install()
	}
	if installed != nil {
		v.t.Fatalf("confirmed: %v, installed: %v", confirmed, installed)
	}
}
