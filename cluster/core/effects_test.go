package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/inbox"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// scripted is a machine with a given result for each entry.
type scripted struct {
	Machine
	results map[uint64]fact.Result
}

func (s scripted) Apply(index, _ uint64, _ []byte) fact.Result { return s.results[index] }

// The changes of entries are reported in order, each before its outcomes; entries
// without changes are not reported. The end of a session has its place among the outcomes:
// what it held is granted later.
func TestEffects_ChangesBeforeOutcomes(t *testing.T) {
	r := newRig(t).follow()
	t1, t2 := wire.Ticket{Incarnation: r.incarnation, Seq: 1}, wire.Ticket{Incarnation: r.incarnation, Seq: 2}
	key := func(index uint64) fact.KeyChange {
		return fact.KeyChange{Index: index, Entry: &fact.Entry{Key: "k", ModifyIndex: index}}
	}
	outcome := func(t wire.Ticket, more bool) fact.Outcome {
		return fact.Outcome{Ticket: t, Member: r.id, Reply: &wire.Reply{Code: wire.Code_OK}, More: more}
	}
	leader := fact.LeaderChange{Election: "e", Leader: &fact.Leader{Fence: 1}}
	shard := fact.ShardChange{Set: "s", Shard: 3}
	recall := fact.Recall{Session: wire.ID{3}, Lock: "x", Handle: 1}
	r.machine = scripted{r.machine, map[uint64]fact.Result{
		5: {Keys: []fact.KeyChange{key(5), key(6)}, Outcomes: []fact.Outcome{outcome(t1, false)}},
		6: {Recalls: []fact.Recall{recall}, Shards: []fact.ShardChange{shard}},
		7: {Leaders: []fact.LeaderChange{leader}, Outcomes: []fact.Outcome{outcome(t2, true), outcome(t2, false)},
			Ended: []fact.Ended{{Session: wire.ID{3}, Outcomes: 1}, {Session: wire.ID{3}, Outcomes: 2}}},
	}}
	for range 2 {
		r.Submit([]byte{1}, new(quietCall), false)
	}
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(6, 5, empty(7, 5)), commit(7)))
	var got []string
	for _, n := range r.effects().Notifications {
		switch {
		case len(n.Keys) == 2 && n.Keys[0].Index == 5 && n.Keys[1].Index == 6:
			got = append(got, "keys")
		case len(n.Leaders) == 1 && n.Leaders[0] == leader:
			got = append(got, "leaders")
		case len(n.Recalls) == 1 && n.Recalls[0] == recall && len(n.Shards) == 1 && n.Shards[0] == shard:
			got = append(got, "recall, shard")
		case n.Call != nil:
			got = append(got, "outcome")
		case n.Ended.Session == wire.ID{3}:
			got = append(got, "ended")
		}
	}
	if want := []string{"keys", "outcome", "recall, shard", "leaders", "outcome", "ended", "outcome", "ended"}; !slices.Equal(got, want) {
		t.Fatalf("notifications %q, want %q", got, want)
	}
}

// The callers that are about to be woken are those of calls and of reads: each may ask
// again at once, and what they ask then is gathered.
func TestEffects_Callers(t *testing.T) {
	call := Notification{Call: new(quietCall)}
	e := Effects{
		Notifications: []Notification{{Keys: []fact.KeyChange{{Index: 1}}}, call, {Ended: fact.Ended{Session: wire.ID{3}}}, call},
		Reads:         []Read{numberedRead(1), numberedRead(2), numberedRead(3)},
	}
	if n := e.Callers(); n != 5 {
		t.Errorf("%d callers, want 5", n)
	}
}

// A local read needs no quorum and runs in the next Take.
func TestReadStale_WithoutQuorum(t *testing.T) {
	r := newRig(t)
	if err := r.ReadStale(numberedRead(1)); err != nil {
		t.Fatal(err)
	}
	out, err := r.Take(0)
	if err != nil || len(out.Reads) != 1 || out.Reads[0] != Read(numberedRead(1)) {
		t.Fatalf("%d reads, %v", len(out.Reads), err)
	}
}

// When the loop stops, each pending call fails exactly once, wherever its outcome is. A
// call that has its last outcome does not fail.
func TestAbandon_EachWaitingCallFailsOnce(t *testing.T) {
	r := newRig(t).follow().registered()
	names := []string{"answered", "queued", "granted", "answer in delivery", "queueing in delivery", "answer not taken", "sent", "not sent"}
	calls := make([]*quietCall, len(names))
	unsent := len(calls) - 1
	for i := range calls {
		if calls[i] = new(quietCall); i < unsent {
			r.Submit([]byte{1}, calls[i], false)
		}
	}
	r.settle()
	r.answer(2, false)
	r.answer(3, true)
	r.answer(4, true)
	r.answer(4, false)
	undelivered := slices.Concat(r.answer(5, false).Notifications, r.answer(6, true).Notifications, r.answer(7, false).Notifications)
	r.Submit([]byte{1}, calls[unsent], false)
	if len(undelivered) != 3 {
		t.Fatalf("%d notifications", len(undelivered))
	}
	taken := Effects{Notifications: []Notification{undelivered[0], {Ended: fact.Ended{Session: wire.ID{3}}}}}
	r.out.Notifications = undelivered[1:]
	taken.Abandon(errUnanswered)
	r.Abandon(errUnanswered)
	for i, c := range calls {
		want := 1
		if names[i] == "answered" || names[i] == "granted" {
			want = 0
		}
		if c.fails != want || want > 0 && !errors.Is(c.failed, errUnanswered) {
			t.Errorf("%s: failed %d times, %v; want %d", names[i], c.fails, c.failed, want)
		}
	}
	if !errors.As(calls[unsent].failed, new(*tickets.UnsentError)) {
		t.Errorf("not sent: %T", calls[unsent].failed)
	}
	taken.Abandon(errors.New("again"))
	r.Abandon(errors.New("again"))
	if slices.ContainsFunc(calls, func(c *quietCall) bool { return c.fails > 1 }) {
		t.Error("a call failed again")
	}
}

// recorder is a driver that records what it carries out.
type recorder struct{ did []string }

func (d *recorder) note(format string, args ...any) {
	d.did = append(d.did, fmt.Sprintf(format, args...))
}

func (d *recorder) Write(b Batch)                         { d.note("write %d", len(b.writes)) }
func (d *recorder) Send(m *raftpb.Message)                { d.note("send to %d", m.GetTo()) }
func (d *recorder) Forward(to uint64, s *wire.Submission) { d.note("forward to %d", to) }
func (d *recorder) SendTransfer(to uint64, m *wire.LeadershipTransfer) {
	d.note("transfer %d to %d", m.GetTo(), to)
}
func (d *recorder) SendDigest(to uint64, m *wire.Digest) {
	d.note("digest of %d to %d", m.GetIndex(), to)
}
func (d *recorder) SendQuiet(to uint64, m *wire.Quiet) { d.note("%v to %d", m.GetStep(), to) }
func (d *recorder) SendSnapshot(m *raftpb.Message)     { d.note("snapshot to %d", m.GetTo()) }
func (d *recorder) CancelSnapshot(uint64)              { d.note("cancel") }
func (d *recorder) Progressed()                        { d.note("progressed") }
func (d *recorder) Restored(m Machine)                 { d.note("restored %t", m != nil) }
func (d *recorder) Changed(k []fact.KeyChange, l []fact.LeaderChange) {
	d.note("%d keys, %d leaders", len(k), len(l))
}
func (d *recorder) ListsChanged()                            { d.note("lists changed") }
func (d *recorder) Recalled(c []fact.Recall)                 { d.note("recalled %d", len(c)) }
func (d *recorder) ShardsChanged(c []fact.ShardChange)       { d.note("%d shards", len(c)) }
func (d *recorder) Ended(e fact.Ended)                       { d.note("ended %d", e.Session[0]) }
func (d *recorder) MembershipChanged(conf *raftpb.ConfState) { d.note("voters %d", conf.GetVoters()) }
func (d *recorder) LeaderChanged()                           { d.note("leader changed") }
func (d *recorder) Resend()                                  { d.note("resend") }

type recordedCall struct {
	quietCall
	*recorder
}

func (c *recordedCall) Deliver(t wire.Ticket, r *wire.Reply, more bool) {
	c.note("outcome %d, fence %d, more %t", t.Seq, r.GetFence(), more)
}

type recordedRead struct{ *recorder }

func (r recordedRead) Run(m Machine) { r.note("read %t", m != nil) }
func (r recordedRead) Ended() bool   { return false }

// What other members wait for is carried out first. Then this process is notified: of
// a restored state before what has happened since, of that in order, and reads run last.
func TestEffects_DeliveredInOrder(t *testing.T) {
	r, d := newRig(t), new(recorder)
	call := &recordedCall{recorder: d}
	e := Effects{
		Batch:     Batch{[]write{{}, {}}},
		Messages:  []*raftpb.Message{{To: new(uint64(2))}, {To: new(uint64(3))}},
		Snapshots: []*raftpb.Message{{To: new(uint64(4))}},
		Forwards:  []Forward{{To: 5}},
		Transfers: []TransferMessage{{To: 6, Transfer: &wire.LeadershipTransfer{To: 7}}},
		Digests:   []DigestMessage{{To: 2, Digest: &wire.Digest{Index: 7}}},
		Notifications: []Notification{
			{Call: call, Ticket: wire.Ticket{Seq: 1}, Reply: &wire.Reply{Fence: 8}, More: true},
			{Keys: make([]fact.KeyChange, 2)},
			{Leaders: make([]fact.LeaderChange, 1)},
			{Shards: make([]fact.ShardChange, 3)},
			{Ended: fact.Ended{Session: wire.ID{9}}},
			{Call: call, Ticket: wire.Ticket{Seq: 2}, Reply: &wire.Reply{Fence: 7}},
		},
		Reads: []Read{recordedRead{d}}, LeaderChanged: true, Restored: true, Machine: r.Machine(),
		Membership: &raftpb.ConfState{Voters: []uint64{1, 2}},
	}
	e.Deliver(d)
	want := []string{
		"write 2", "send to 2", "send to 3", "forward to 5", "transfer 7 to 6", "digest of 7 to 2", "snapshot to 4", "progressed", "restored true",
		"outcome 1, fence 8, more true", "2 keys, 0 leaders", "0 keys, 1 leaders", "3 shards", "ended 9", "outcome 2, fence 7, more false",
		"read true", "voters [1 2]", "leader changed",
	}
	if !slices.Equal(d.did, want) {
		t.Errorf("did\n%s\nwant\n%s", strings.Join(d.did, "\n"), strings.Join(want, "\n"))
	}
	d.did = nil
	(&Effects{}).Deliver(d)
	if !slices.Equal(d.did, []string{"progressed"}) {
		t.Errorf("empty effects did %q", d.did)
	}
}

// What waits at a leader is not counted in the budget of other groups any more once its group is deleted.
func TestAbandon_InboxLeavesBudget(t *testing.T) {
	all := inbox.NewBudget()
	r := newRig(t, func(c *Config) { c.Budgets.Inboxes = all }).lead()
	incarnation := wire.ID{2}
	err := r.ReceiveSubmission(2, &wire.Submission{Member: 2, Incarnation: incarnation[:], Calls: []*wire.Call{{Seq: 1, Command: []byte{1}}}})
	if err != nil || r.inbox.Size() == 0 || r.inbox.Size() != all.Taken() {
		t.Fatalf("%d bytes wait, and %d are counted: %v", r.inbox.Size(), all.Taken(), err)
	}
	if r.Abandon(errUnanswered); all.Taken() != 0 {
		t.Errorf("%d bytes are counted", all.Taken())
	}
}
