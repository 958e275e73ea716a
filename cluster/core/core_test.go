package core

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// forwarded returns the receivers of forwarded submissions, and their tickets.
func (r *rig) forwarded() (to, seqs []uint64) {
	r.t.Helper()
	return forwarded(r.effects())
}

func forwarded(out Effects) (to, seqs []uint64) {
	for _, f := range out.Forwards {
		to = append(to, f.To)
		for _, c := range f.Submission.GetCalls() {
			seqs = append(seqs, c.GetSeq())
		}
	}
	return to, seqs
}

// registered submits the registration and delivers its outcome.
func (r *rig) registered() *rig {
	r.t.Helper()
	r.Submit([]byte("registration"), new(quietCall), true)
	r.settle()
	r.answer(1, false)
	return r
}

// answer applies an entry with an outcome.
func (r *rig) answer(seq uint64, more bool) Effects {
	r.t.Helper()
	return r.applyResult(fact.Result{Outcomes: []fact.Outcome{{
		Ticket: wire.Ticket{Incarnation: r.incarnation, Seq: seq}, Member: r.id, Reply: &wire.Reply{Code: wire.Code_OK}, More: more,
	}}})
}

// applyResult applies one more entry, for which the machine returns result.
func (r *rig) applyResult(result fact.Result) Effects {
	r.t.Helper()
	index := r.last + 1
	whole := r.machine
	r.machine = scripted{whole, map[uint64]fact.Result{index: result}}
	r.mustReceive(message(raftpb.MsgApp, 2, r.term, following(r.last, r.term, empty(index, r.term)), commit(index)))
	out := r.effects()
	r.machine = whole
	if r.applied != index {
		r.t.Fatalf("applied %d of %d", r.applied, index)
	}
	return out
}

// A command is sent when a leader is known, retried while it has no outcome, and sent at
// once to a new leader.
func TestSubmit_RepeatedUntilOutcome(t *testing.T) {
	r := newRig(t)
	r.Submit([]byte{1}, new(quietCall), true)
	r.Tick()
	if to, _ := r.forwarded(); len(to) > 0 {
		t.Fatalf("sent to %d without a leader", to)
	}
	r.follow()
	r.Submit([]byte{2}, new(quietCall), false) // waits behind the registration
	want := func(when string, leader uint64, want ...uint64) {
		t.Helper()
		to, seqs := r.forwarded()
		if !slices.Equal(seqs, want) || len(to) != min(1, len(want)) || len(to) == 1 && to[0] != leader {
			t.Errorf("%s: %d are sent to %d, want %d to %d", when, seqs, to, want, leader)
		}
	}
	for tick := 1; tick < tickets.FirstRetryUrgent; tick++ {
		r.Tick()
		want(fmt.Sprintf("tick %d", tick), 2)
	}
	r.Tick()
	want("retry", 2, 1)
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, 6))
	want("another leader", 3, 1)
	r.PeerDisconnected(3)
	want("after the leader disconnected", 3)
	for range electionTicks - 1 {
		r.Tick()
		want("no leader", 0)
	}
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, 6))
	want("the same leader again", 3, 1)
}

// The pending calls of a process are limited; renewals and releases are taken beyond
// the limit.
func TestSubmit_LimitOfCalls(t *testing.T) {
	r := newRig(t)
	for i := range r.maxCalls {
		c := new(quietCall)
		if r.Submit([]byte{1}, c, false); c.fails > 0 {
			t.Fatalf("call %d: %v", i, c.failed)
		}
	}
	c := new(quietCall)
	if r.Submit([]byte{1}, c, false); c.failed != tickets.ErrTooManyCalls || c.fails != 1 {
		t.Errorf("one too many: %v", c.failed)
	}
	c = new(quietCall)
	if r.Submit([]byte{1}, c, true); c.fails > 0 {
		t.Errorf("an urgent one: %v", c.failed)
	}
}

// A call learns whether it was withdrawn before its command was sent.
func TestCancel_ReportsWhetherSent(t *testing.T) {
	r := newRig(t).follow().registered()
	sent, waits := new(quietCall), new(quietCall)
	r.Submit([]byte{1}, sent, false)
	if out := r.effects(); len(out.Forwards) != 1 || out.Forwards[0].Submission.GetFloor() != 1 {
		t.Errorf("sends %v, want floor 1", out.Forwards)
	}
	r.Submit([]byte{2}, waits, false)
	r.Cancel(sent)
	r.Cancel(waits)
	if !slices.Equal(sent.cancelled, []bool{true}) || !slices.Equal(waits.cancelled, []bool{false}) {
		t.Errorf("sent %v and %v", sent.cancelled, waits.cancelled)
	}
	if _, seqs := r.forwarded(); len(seqs) > 0 {
		t.Errorf("sent %d after it was cancelled", seqs)
	}
}

// Under a new incarnation the registration is sent first and alone. The calls of the
// former one have failed, unless they were not sent.
func TestReregister(t *testing.T) {
	r := newRig(t).follow().registered()
	sent, queued, waits := new(quietCall), new(quietCall), new(quietCall)
	r.Submit([]byte{1}, queued, false)
	r.Submit([]byte{2}, sent, false)
	r.settle()
	r.answer(2, true)
	r.settle()
	r.Submit([]byte{3}, waits, false)
	registration, next := new(quietCall), new(quietCall)
	r.Reregister(wire.ID{7}, []byte("again"), registration)
	r.Submit([]byte{4}, next, true)
	if !slices.Equal(waits.unsent, []wire.Code{wire.Code_UNKNOWN_INCARNATION}) || waits.fails > 0 {
		t.Errorf("waiting: answered %v, failed %v", waits.unsent, waits.failed)
	}
	for name, c := range map[string]*quietCall{"sent": sent, "queued": queued} {
		if c.failed != tickets.ErrUnregistered || c.fails != 1 {
			t.Errorf("%s: failed %d times, %v", name, c.fails, c.failed)
		}
	}
	if r.Incarnation() != (wire.ID{7}) {
		t.Errorf("incarnation %v", r.Incarnation())
	}
	out, err := r.Take(0)
	if err != nil || len(out.Forwards) != 1 {
		t.Fatalf("%d submissions, %v", len(out.Forwards), err)
	}
	id := wire.ID{7}
	want := &wire.Submission{Incarnation: id[:], Member: r.id, Calls: []*wire.Call{{Seq: 1, Command: []byte("again")}}, Urgent: true, Applied: r.applied}
	if got := out.Forwards[0].Submission; !proto.Equal(got, want) {
		t.Errorf("sends %v, want %v", got, want)
	}
	r.persist(out.Batch.writes)
	unknown := fact.Outcome{Ticket: wire.Ticket{Incarnation: wire.ID{7}, Seq: 99}, Member: r.id, Reply: &wire.Reply{Code: wire.Code_OK}}
	former := fact.Outcome{Ticket: wire.Ticket{Incarnation: wire.ID{1}, Seq: 1}, Member: r.id, Reply: &wire.Reply{Code: wire.Code_OK}}
	forged := fact.Outcome{Ticket: wire.Ticket{Incarnation: wire.ID{7}, Seq: 1}, Member: r.id + 1, Reply: &wire.Reply{Code: wire.Code_OK}}
	if out := r.applyResult(fact.Result{Outcomes: []fact.Outcome{former, unknown, forged}}); len(out.Notifications) > 0 || len(out.Forwards) > 0 {
		t.Errorf("an outcome of the former incarnation, one for no call, and one of another member's command: %+v", out)
	}
	if _, seqs := forwarded(r.answer(1, false)); !slices.Equal(seqs, []uint64{2}) {
		t.Errorf("sends %d then", seqs)
	}
}

// Members whose machines apply one log differently have different digests from then on.
func TestDigest_OfChanges(t *testing.T) {
	digest := func(value string) uint64 {
		r := newRig(t).follow()
		r.mustReceive(message(raftpb.MsgApp, 2, 5, following(6, 5), commit(6)))
		r.settle()
		r.applyResult(fact.Result{Changes: []wire.Change{change("k", value)}})
		r.applyResult(fact.Result{})
		r.Checkpoint()
		r.settle()
		index, digest := r.Digest()
		if index != r.Status().Applied {
			t.Fatalf("the digest is of index %d, %d are applied", index, r.Status().Applied)
		}
		if on := r.log.Applied(); on.Digest != digest || on.Index != index {
			t.Errorf("on the disk: %+v; here: %x at %d", on, digest, index)
		}
		return digest
	}
	if a, b := digest("1"), digest("1"); a != b {
		t.Errorf("one history has the digests %x and %x", a, b)
	}
	if a, b := digest("1"), digest("2"); a == b {
		t.Error("two histories have one digest")
	}
}

// A change of leader, term or role is reported, and nothing else is.
func TestLeaderChanged_Reported(t *testing.T) {
	r := newRig(t).follow()
	for _, test := range []struct {
		name  string
		event func()
		want  bool
	}{
		{"a heartbeat", func() { r.mustReceive(message(raftpb.MsgHeartbeat, 2, 5)) }, false},
		{"entries", func() { r.mustReceive(message(raftpb.MsgApp, 2, 5, following(6, 5, empty(7, 5)), commit(7))) }, false},
		{"another leader", func() { r.mustReceive(message(raftpb.MsgHeartbeat, 3, 6)) }, true},
		{"the same one in another term", func() { r.mustReceive(message(raftpb.MsgHeartbeat, 3, 7)) }, true},
		{"no leader", func() { r.PeerDisconnected(3) }, true},
		{"a vote", func() { r.mustReceive(message(raftpb.MsgVote, 2, 8, following(7, 8))) }, true},
	} {
		test.event()
		reported := false
		for {
			out, err := r.Take(0)
			if err != nil {
				t.Fatal(err)
			}
			reported = reported || out.LeaderChanged
			if len(out.Batch.writes) == 0 {
				break
			}
			r.persist(out.Batch.writes)
		}
		if reported != test.want {
			t.Errorf("%s: reported %t", test.name, reported)
		}
	}
}

// Status shows the progress, and whether the member proposes.
func TestStatus(t *testing.T) {
	r := newRig(t).follow()
	got := r.Status()
	if got.Leader != 2 || got.Term != 5 || got.Leads || got.Proposing || got.Commit != 4 || got.Applied != 4 || len(got.Membership.GetVoters()) != 3 {
		t.Errorf("as a follower: %+v", got)
	}
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(6, 5), commit(6)))
	r.settle()
	r.elect()
	r.settle()
	if got := r.Status(); got.Leader != 1 || got.Term != 6 || got.Proposing || got.Commit != 6 || got.Applied != 6 {
		t.Errorf("elected: %+v", got)
	}
	r.mustReceive(message(raftpb.MsgAppResp, 2, 6, following(7, 0)))
	r.settle()
	if got := r.Status(); !got.Leads || !got.Proposing || got.Commit != 7 || got.Applied != 7 {
		t.Errorf("proposing: %+v", got)
	}
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, 7))
	r.settle()
	if got := r.Status(); got.Leader != 3 || got.Term != 7 || got.Leads || got.Proposing {
		t.Errorf("not proposing: %+v", got)
	}
	r.PeerDisconnected(3)
	r.settle()
	r.mustReceive(message(raftpb.MsgVote, 2, 9, following(r.last, 9)))
	r.settle()
	if got := r.Status(); got.Leader != raft.None || got.Term != 9 {
		t.Errorf("between two leaders: %+v", got)
	}
}

// A restarted member continues from its disk.
func TestNew_ContinuesFromDisk(t *testing.T) {
	r := newRig(t).follow()
	r.applyResult(fact.Result{Changes: []wire.Change{change("k", "v")}})
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, 6))
	r.Checkpoint()
	r.settle()
	before, last := r.Status(), r.last
	index, digest := r.Digest()
	r.open()
	r.start()
	after := r.Status()
	if after.Term != before.Term || after.Applied != before.Applied || r.last != last || len(after.Membership.GetVoters()) != 3 {
		t.Errorf("restarted with %+v and last index %d, want %+v and %d", after, r.last, before, last)
	}
	if i, d := r.Digest(); i != index || d != digest {
		t.Errorf("the digest is %x at %d, was %x at %d", d, i, digest, index)
	}
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, 6))
	r.Submit([]byte{1}, new(quietCall), true)
	r.Submit([]byte{2}, new(quietCall), true)
	if _, seqs := r.forwarded(); !slices.Equal(seqs, []uint64{1}) {
		t.Errorf("sends %d before it is registered", seqs)
	}
}

// What waits for a registration that the group refuses has its answer. Nothing is sent under that incarnation.
func TestReregister_Refused(t *testing.T) {
	r := newRig(t).follow().registered()
	registration, waits, renewal, later := new(quietCall), new(quietCall), new(quietCall), new(quietCall)
	r.Reregister(wire.ID{7}, []byte("again"), registration)
	r.Submit([]byte{1}, waits, false)
	r.Submit([]byte{2}, renewal, true)
	r.settle()
	r.calls.outcome(fact.Outcome{Ticket: wire.Ticket{Incarnation: wire.ID{7}, Seq: 1}, Member: r.id, Reply: &wire.Reply{Code: wire.Code_BUSY}})
	r.Submit([]byte{3}, later, true)
	for name, c := range map[string]*quietCall{"waiting": waits, "renewal": renewal} {
		if !slices.Equal(c.unsent, []wire.Code{wire.Code_BUSY}) || c.fails > 0 {
			t.Errorf("%s: answered %v, failed %v", name, c.unsent, c.failed)
		}
	}
	if !slices.Equal(later.unsent, []wire.Code{wire.Code_UNKNOWN_INCARNATION}) {
		t.Errorf("later: answered %v", later.unsent)
	}
	if out, err := r.Take(0); err != nil || len(out.Forwards) > 0 || len(out.Notifications) != 1 || r.Status().Registered {
		t.Errorf("sends %v, notifies of %d, registered: %v; %v", out.Forwards, len(out.Notifications), r.Status().Registered, err)
	}
}
