package core

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/tickets"
)

// However often a member sends a command, the log of a leader contains it once.
func TestPropose_NoDuplicates(t *testing.T) {
	r := newRig(t).follow().lead()
	var got []uint64
	for range 3 {
		r.mustSubmit(command(1)) // in flight
		r.mustSubmit(command(2)) // waits
		got = append(got, commands(r.batches(r.settle()))...)
	}
	for range 4 {
		got = append(got, commands(r.batches(r.acknowledge(2)))...)
		r.mustSubmit(command(1)) // applied
		r.mustSubmit(command(2))
	}
	if !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("proposes %d; want each command once", got)
	}
	again := command(1)
	again.Applied = r.applied
	r.mustSubmit(again)
	if got := commands(r.batches(r.settle())); !slices.Equal(got, []uint64{1}) {
		t.Errorf("proposes %d after a snapshot has skipped the outcome; want it again", got)
	}
}

// A leader that loses its term forgets what was in flight, since it may never commit: in
// its next term it takes the command again.
func TestPropose_AgainInNextTerm(t *testing.T) {
	r := newRig(t).follow().lead()
	r.mustSubmit(command(1))
	r.settle()
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, r.term+1))
	r.settle()
	r.lead()
	r.mustSubmit(command(1))
	if got := commands(r.batches(r.settle())); !slices.Equal(got, []uint64{1}) {
		t.Errorf("proposes %d", got)
	}
}

// What waits while leadership is being transferred is proposed if the transfer fails.
func TestPropose_KeptDuringTransfer(t *testing.T) {
	r := newRig(t).follow().lead()
	r.acknowledge(2, 3)
	r.Transfer(3, make(chan error, 1))
	r.mustSubmit(command(1))
	for r.node.BasicStatus().LeadTransferee != raft.None {
		if r.inbox.Empty() {
			t.Fatal("nothing waits in the middle of a transfer")
		}
		r.Tick()
		r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term))
	}
	if got := commands(r.batches(r.settle())); !slices.Equal(got, []uint64{1}) {
		t.Errorf("proposes %d", got)
	}
}

// After a new connection to the leader every pending command is sent again, and after
// one to another member none is.
func TestReconnected_RetriesCalls(t *testing.T) {
	r := newRig(t).follow().registered()
	r.Submit([]byte{1}, new(quietCall), false)
	r.Submit([]byte{2}, new(quietCall), true)
	r.effects()
	r.Reconnected(3)
	if out := r.effects(); len(out.Forwards) > 0 {
		t.Errorf("sends %v after a connection to another member", out.Forwards)
	}
	r.Reconnected(2)
	if _, seqs := forwarded(r.effects()); !slices.Equal(seqs, []uint64{2, 3}) {
		t.Errorf("sends %d again, want 2 and 3", seqs)
	}
}

// Urgent commands leave in submissions of their own, marked as such, before the others.
func TestSubmit_Lanes(t *testing.T) {
	r := newRig(t).follow().registered()
	r.Submit([]byte{1}, new(quietCall), false)
	r.Submit([]byte{2}, new(quietCall), true)
	out := r.effects()
	if len(out.Forwards) != 2 || !out.Forwards[0].Submission.GetUrgent() || out.Forwards[1].Submission.GetUrgent() {
		t.Errorf("sends %v", out.Forwards)
	}
}

// A call beyond the limit in bytes is refused at once and is not sent; an urgent one is
// sent.
func TestSubmit_LimitOfBytes(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxCallBytes = 3000 }).follow().registered()
	for range 2 {
		r.Submit(make([]byte, 1000), new(quietCall), false)
	}
	busy, urgent := new(quietCall), new(quietCall)
	r.Submit(make([]byte, 1000), busy, false)
	r.Submit(make([]byte, 1000), urgent, true)
	if busy.failed != tickets.ErrTooManyCalls || busy.fails != 1 || urgent.fails > 0 {
		t.Errorf("ordinary: %v, urgent: %v", busy.failed, urgent.failed)
	}
	if _, seqs := forwarded(r.effects()); len(seqs) != 3 {
		t.Errorf("sends %d; want 3 commands", seqs)
	}
}
