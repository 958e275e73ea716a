package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// rig is the core of member 1 with its disk. The test plays the other members.
type rig struct {
	t testing.TB
	*Core
	log   *raftlog.Log
	store *storage.Store
	at    time.Duration // monotonic time, passed to Take
}

func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	return newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}}, change...)
}

// newRigIn is a rig in a group of another membership.
func newRigIn(t testing.TB, conf *raftpb.ConfState, change ...func(*Config)) *rig {
	t.Helper()
	store, err := storage.Open(storage.Options{Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r := &rig{t: t, store: store}
	r.open()
	if err := r.log.Bootstrap(conf); err != nil {
		t.Fatal(err)
	}
	r.start(change...)
	return r
}

// open reads the log from the disk.
func (r *rig) open() {
	r.t.Helper()
	var err error
	if r.log, err = raftlog.Open(r.store); err != nil {
		r.t.Fatal(err)
	}
}

// start creates a core from the log.
func (r *rig) start(change ...func(*Config)) {
	r.t.Helper()
	cfg := Config{
		ID: 1, Incarnation: wire.ID{1}, Log: r.log, Machine: machine.New(),
		Tick: tick, ElectionTicks: electionTicks, Rand: rand.New(rand.NewPCG(1, 1)),
		Logger: quiet, Keep: 1000, KeepBytes: 8 << 20, MaxCalls: 10,
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if r.Core, err = New(cfg); err != nil {
		r.t.Fatal(err)
	}
}

// effects takes effects and completes writes until there are none. It returns them all.
func (r *rig) effects() (all Effects) {
	r.t.Helper()
	for {
		out, err := r.Take(r.at)
		if err != nil {
			r.t.Fatal(err)
		}
		all.Snapshots = append(all.Snapshots, out.Snapshots...)
		all.Messages = append(all.Messages, out.Messages...)
		all.Forwards = append(all.Forwards, out.Forwards...)
		all.Transfers = append(all.Transfers, out.Transfers...)
		all.Digests = append(all.Digests, out.Digests...)
		all.Notifications = append(all.Notifications, out.Notifications...)
		if len(out.Batch.writes) == 0 {
			return all
		}
		r.persist(out.Batch.writes)
	}
}

// settle is effects that returns the messages only.
func (r *rig) settle() []*raftpb.Message {
	r.t.Helper()
	return r.effects().Messages
}

// pass passes ticks, in each of which the given members answer the heartbeat. It returns
// the messages sent.
func (r *rig) pass(ticks int, heard ...uint64) (messages []*raftpb.Message) {
	r.t.Helper()
	for range ticks {
		r.Tick()
		messages = append(messages, r.settle()...)
		for _, id := range heard {
			r.mustReceive(message(raftpb.MsgHeartbeatResp, id, r.term))
		}
		messages = append(messages, r.settle()...)
	}
	return messages
}

// persist completes writes, like the disk's writer.
func (r *rig) persist(writes []write) {
	r.t.Helper()
	for _, w := range writes {
		if w.op == nil {
			continue
		}
		if err := r.log.Write([]raftlog.Op{w.op}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.Stored(nil)
}

// share has another group write to the same disk.
func (r *rig) share() {
	r.t.Helper()
	other, err := r.log.OpenGroup(1)
	if err != nil {
		r.t.Fatal(err)
	}
	other.Submit(nil, func(err error) {
		if err != nil {
			r.t.Error(err)
		}
	})
}

func message(kind raftpb.MessageType, from, term uint64, more ...func(*raftpb.Message)) *raftpb.Message {
	m := &raftpb.Message{Type: kind.Enum(), To: new(uint64(1)), From: new(from), Term: new(term)}
	for _, change := range more {
		change(m)
	}
	return m
}

func empty(index, term uint64) *raftpb.Entry {
	return &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Index: new(index), Term: new(term)}
}

// following sets what an append follows, and its entries.
func following(index, term uint64, entries ...*raftpb.Entry) func(*raftpb.Message) {
	return func(m *raftpb.Message) { m.Index, m.LogTerm, m.Entries = new(index), new(term), entries }
}

func commit(index uint64) func(*raftpb.Message) {
	return func(m *raftpb.Message) { m.Commit = new(index) }
}

// follow makes the core a follower of member 2 in term 5, whose log ends at
// index 6 and is committed to 4.
func (r *rig) follow() *rig {
	r.t.Helper()
	entries := []*raftpb.Entry{empty(2, 5), empty(3, 5), empty(4, 5), empty(5, 5), empty(6, 5)}
	if err := r.Receive(2, message(raftpb.MsgApp, 2, 5, following(1, 1, entries...), commit(4))); err != nil {
		r.t.Fatal(err)
	}
	r.settle()
	if r.applied != 4 || r.last != 6 || r.role.Lead != 2 {
		r.t.Fatalf("applied %d of %d, led by %d", r.applied, r.last, r.role.Lead)
	}
	return r
}

// lead makes the core the leader, with everything committed.
func (r *rig) lead() *rig {
	r.t.Helper()
	r.elect()
	r.settle()
	r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(r.last, 0)))
	r.settle()
	if r.applied != r.last {
		r.t.Fatalf("applied %d of %d", r.applied, r.last)
	}
	return r
}

// elect has member 2 vote for the core.
func (r *rig) elect() {
	r.t.Helper()
	r.ignore(r.node.Campaign())
	for r.role.RaftState != raft.StateLeader {
		for _, m := range r.settle() {
			kind := raftpb.MsgVoteResp
			if m.GetType() == raftpb.MsgPreVote {
				kind = raftpb.MsgPreVoteResp
			}
			if m.GetTo() == 2 {
				r.mustReceive(message(kind, 2, m.GetTerm()))
			}
		}
	}
}

// mustSubmit receives a submission of its member.
func (r *rig) mustSubmit(s *wire.Submission) {
	r.t.Helper()
	if err := r.ReceiveSubmission(s.GetMember(), s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) mustReceive(m *raftpb.Message) {
	r.t.Helper()
	if err := r.Receive(m.GetFrom(), m); err != nil {
		r.t.Fatal(err)
	}
}
