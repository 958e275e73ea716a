package core

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// batches are those that a leader proposes in messages.
func (r *rig) batches(messages []*raftpb.Message) (list []*wire.Batch) {
	r.t.Helper()
	for _, m := range messages {
		if m.GetTo() != 2 {
			continue
		}
		for _, e := range m.GetEntries() {
			if len(e.GetData()) == 0 || e.GetType() != raftpb.EntryNormal {
				continue
			}
			parsed, err := parseEntry(e.GetData())
			if err != nil {
				r.t.Fatal(err)
			}
			b := new(wire.Batch)
			if err := proto.Unmarshal(parsed.batch, b); err != nil {
				r.t.Fatal(err)
			}
			list = append(list, b)
		}
	}
	return list
}

// takeAt carries out what there is to do at a time.
func (r *rig) takeAt(now time.Duration) (messages []*raftpb.Message) {
	r.t.Helper()
	for {
		out, err := r.Take(now)
		if err != nil {
			r.t.Fatal(err)
		}
		messages = append(messages, out.messages...)
		if len(out.writes) == 0 {
			return messages
		}
		r.carry(out.writes)
	}
}

func command(seq uint64) *wire.Submission {
	return &wire.Submission{Incarnation: make([]byte, 16), Calls: []*wire.Call{{Seq: seq}}}
}

func commands(batches []*wire.Batch) (seqs []uint64) {
	for _, b := range batches {
		for _, s := range b.GetSubmissions() {
			for _, c := range s.GetCalls() {
				seqs = append(seqs, c.GetSeq())
			}
		}
	}
	return seqs
}

// One batch is under way at a time, and what comes meanwhile goes into the next.
func TestOneBatchAtATime(t *testing.T) {
	r := newRig(t).follow().lead()
	r.ReceiveSubmission(command(1))
	if got := commands(r.batches(r.settle())); !slices.Equal(got, []uint64{1}) {
		t.Fatalf("proposes %d", got)
	}
	for seq := uint64(2); seq <= 4; seq++ {
		r.ReceiveSubmission(command(seq))
		if got := r.batches(r.settle()); len(got) > 0 {
			t.Fatalf("proposes %v while another is under way", got)
		}
	}
	got := r.batches(r.have(2))
	if len(got) != 1 || !slices.Equal(commands(got), []uint64{2, 3, 4}) {
		t.Errorf("proposes %v", got)
	}
}

// A leader's own commands wait with those of the others.
func TestALeaderProposesItsOwn(t *testing.T) {
	r := newRig(t).follow().lead()
	r.Submit([]byte("registration"), new(quietCall), true)
	out := r.effects()
	if got := r.batches(out.messages); len(out.forward) > 0 || !slices.Equal(commands(got), []uint64{1}) {
		t.Errorf("proposes %v, and forwards %v", got, out.forward)
	}
}

// Who does not lead any more keeps no commands: their owners send them to the
// next, and what is kept here would be in nobody's count.
func TestCommandsGoWithTheOffice(t *testing.T) {
	r := newRig(t).follow().lead()
	for seq := range uint64(3) {
		r.ReceiveSubmission(command(seq + 1))
		r.settle()
	}
	if r.inbox.empty() {
		t.Fatal("nothing waits")
	}
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, r.term+1))
	r.settle()
	if !r.inbox.empty() || r.inbox.bytes != 0 {
		t.Errorf("%d bytes wait with a follower", r.inbox.bytes)
	}
	r.ReceiveSubmission(command(9))
	if !r.inbox.empty() {
		t.Error("a follower takes commands in")
	}
}

// due is a machine that has a deadline.
type due struct {
	Machine
	at time.Duration
}

func (d due) NextDeadline() (int64, bool) { return int64(d.at), d.at > 0 }

// An empty batch goes out when a deadline has passed, not before, and no other
// until it is applied.
func TestADeadlineIsProposedWhenItHasPassed(t *testing.T) {
	const ms = time.Millisecond
	r := newRig(t).follow().lead()
	whole := r.machine
	r.machine = due{whole, 150 * ms}
	for _, now := range []time.Duration{100 * ms, 149 * ms} {
		if got := r.batches(r.takeAt(now)); len(got) > 0 {
			t.Fatalf("proposes %v at %v", got, now)
		}
	}
	got := r.batches(r.takeAt(150 * ms))
	if len(got) != 1 || len(got[0].GetSubmissions()) > 0 || got[0].GetTime() != int64(150*ms) {
		t.Fatalf("proposes %v", got)
	}
	if got := r.batches(r.takeAt(200 * ms)); len(got) > 0 {
		t.Errorf("proposes %v again", got)
	}
	r.machine = whole // there is no other deadline
	r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, behind(r.last, 0)))
	if got := r.batches(r.takeAt(250 * ms)); len(got) > 0 {
		t.Errorf("proposes %v without a deadline", got)
	}
}

// Group time runs on while a batch is under way: what it takes to agree on it is
// not lost.
func TestGroupTimeRunsOnBetweenBatches(t *testing.T) {
	const ms = time.Millisecond
	r := newRig(t).follow().lead()
	for round := range 5 {
		now := time.Duration(round) * 100 * ms
		r.takeAt(now)
		r.ReceiveSubmission(command(uint64(round + 1)))
		got := r.batches(r.takeAt(now + 10*ms))
		if len(got) != 1 || got[0].GetTime() != int64(now+10*ms) {
			t.Fatalf("proposes %v at %v", got, now+10*ms)
		}
		r.takeAt(now + 60*ms)
		r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, behind(r.last, 0)))
		r.takeAt(now + 70*ms)
	}
}
