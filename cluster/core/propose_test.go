package core

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/inbox"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// batches returns the batches that a leader replicates in messages.
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
			if err := proto.Unmarshal(parsed, b); err != nil {
				r.t.Fatal(err)
			}
			list = append(list, b)
		}
	}
	return list
}

// takeAt is settle at a given time.
func (r *rig) takeAt(now time.Duration) (messages []*raftpb.Message) {
	r.t.Helper()
	r.at = now
	return r.settle()
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

// While an entry is being written here, later commands gather. The next entry follows when
// it is written, without waiting for the other members.
func TestPropose_FollowsTheWrite(t *testing.T) {
	r := newRig(t).follow().lead()
	r.mustSubmit(command(1))
	out, err := r.Take(r.at)
	if err != nil {
		t.Fatal(err)
	}
	if got := commands(r.batches(out.Messages)); !slices.Equal(got, []uint64{1}) {
		t.Fatalf("proposes %d", got)
	}
	for seq := uint64(2); seq <= 4; seq++ {
		r.mustSubmit(command(seq))
		if got := r.batches(r.takeOnly()); len(got) > 0 {
			t.Fatalf("proposes %v while another is being written", got)
		}
	}
	r.persist(out.Batch.writes)
	if got := r.batches(r.settle()); len(got) != 1 || !slices.Equal(commands(got), []uint64{2, 3, 4}) {
		t.Errorf("proposes %v", got)
	}
}

// The entries in flight are bounded, in number and in bytes.
func TestPropose_Bounded(t *testing.T) {
	large := command(1)
	large.Calls[0].Command = make([]byte, maxEntriesBytes)
	for name, first := range map[string][]*wire.Submission{
		"entries": {command(1), command(2), command(3), command(4)},
		"bytes":   {large},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).follow().lead()
			for _, s := range first {
				r.mustSubmit(s)
				if got := r.batches(r.settle()); len(got) != 1 {
					t.Fatalf("proposes %d entries", len(got))
				}
			}
			for seq := uint64(11); seq <= 13; seq++ {
				r.mustSubmit(command(seq))
				if got := r.batches(r.settle()); len(got) > 0 {
					t.Fatalf("proposes %v beyond the bound", got)
				}
			}
			if got := r.batches(r.acknowledge(2)); len(got) != 1 || !slices.Equal(commands(got), []uint64{11, 12, 13}) {
				t.Errorf("proposes %v", got)
			}
		})
	}
}

// While another group writes to the same disk, entries are smaller, so that its writes do not wait long for theirs.
func TestPropose_SmallerOnSharedDisk(t *testing.T) {
	for _, c := range []struct {
		shared bool
		want   []uint64
	}{{false, []uint64{1, 2, 3}}, {true, []uint64{1, 2}}} {
		r := newRig(t).follow().lead()
		if c.shared {
			r.share()
		}
		for seq := range uint64(3) {
			s := command(seq + 1)
			s.Calls[0].Command = make([]byte, raftlog.SharedWrite*2/5)
			r.mustSubmit(s)
		}
		if got := commands(r.batches(r.takeOnly())); !slices.Equal(got, c.want) {
			t.Errorf("shared %t: proposes %d, want %d", c.shared, got, c.want)
		}
	}
}

// A leader proposes its own commands in batches with those of other members.
func TestPropose_OwnCommands(t *testing.T) {
	r := newRig(t).follow().lead()
	r.Submit([]byte("registration"), new(quietCall), true)
	out := r.effects()
	if got := r.batches(out.Messages); len(out.Forwards) > 0 || !slices.Equal(commands(got), []uint64{1}) {
		t.Errorf("proposes %v, and forwards %v", got, out.Forwards)
	}
}

// A member that steps down drops the commands of other members, which retry them with
// the next leader.
func TestPropose_DroppedOnStepDown(t *testing.T) {
	r := newRig(t).follow().lead()
	for seq := range uint64(maxEntries + 2) {
		r.mustSubmit(command(seq + 1))
		r.settle()
	}
	if r.inbox.Empty() {
		t.Fatal("nothing waits")
	}
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, r.term+1))
	r.settle()
	if !r.inbox.Empty() || r.inbox.Size() != 0 {
		t.Errorf("%d bytes wait with a follower", r.inbox.Size())
	}
	r.mustSubmit(command(9))
	if !r.inbox.Empty() {
		t.Error("a follower takes commands in")
	}
}

// due is a machine that has a deadline.
type due struct {
	Machine
	at time.Duration
}

func (d due) NextDeadline() (int64, bool) { return int64(d.at), d.at > 0 }

// When a deadline has passed an empty batch is proposed, not before, and no other one
// until it is applied.
func TestPropose_DeadlinePassed(t *testing.T) {
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
	r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(r.last, 0)))
	if got := r.batches(r.takeAt(250 * ms)); len(got) > 0 {
		t.Errorf("proposes %v without a deadline", got)
	}
}

// Group time runs on while a batch is under way.
func TestGroupTime_RunsDuringBatch(t *testing.T) {
	const ms = time.Millisecond
	r := newRig(t).follow().lead()
	for round := range 5 {
		now := time.Duration(round) * 100 * ms
		r.takeAt(now)
		r.mustSubmit(command(uint64(round + 1)))
		got := r.batches(r.takeAt(now + 10*ms))
		if len(got) != 1 || got[0].GetTime() != int64(now+10*ms) {
			t.Fatalf("proposes %v at %v", got, now+10*ms)
		}
		r.takeAt(now + 60*ms)
		r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(r.last, 0)))
		r.takeAt(now + 70*ms)
	}
}

// Group time continues from the machine's, whatever the clock of the new leader shows.
func TestGroupTime_BeginsAtMachine(t *testing.T) {
	r := newRig(t).follow()
	r.at = time.Hour
	r.lead().mustSubmit(command(1))
	if got := r.batches(r.settle()); len(got) != 1 || got[0].GetTime() != r.machine.Now() {
		t.Errorf("proposes %v where group time is %d", got, r.machine.Now())
	}
}

// A leader whose batches were under way when it lost leadership does not wait for them in a
// later term.
func TestPropose_BatchOfEarlierTerm(t *testing.T) {
	r := newRig(t).follow().lead()
	last, term := r.last, r.term
	for seq := range uint64(maxEntries) {
		r.mustSubmit(command(seq + 1))
		r.settle()
	}
	r.mustReceive(message(raftpb.MsgApp, 3, term+1, following(last, term, empty(last+1, term+1)), commit(last+1)))
	r.settle()
	r.lead().mustSubmit(command(9))
	if got := commands(r.batches(r.settle())); !slices.Equal(got, []uint64{9}) {
		t.Errorf("proposes %d", got)
	}
}

// A leader does not wait for a membership change that it proposed in an earlier term.
func TestRemoval_ChangeOfEarlierTerm(t *testing.T) {
	r := newRig(t).follow().lead()
	r.machine = removedMembers{r.machine, []uint64{3}}
	if got := r.changes(r.settle()); !slices.Equal(got, []string{demotes(3)}) {
		t.Fatalf("%q", got)
	}
	last, term := r.last-1, r.term
	r.mustReceive(message(raftpb.MsgApp, 2, term+1, following(last, term, empty(last+1, term+1)), commit(last+1)))
	r.settle()
	r.elect()
	r.settle()
	if got := r.changes(r.acknowledge(2)); !slices.Equal(got, []string{demotes(3)}) {
		t.Errorf("%q then", got)
	}
}

// Nothing is proposed before the first entry of the term is applied: until then the state
// may be older than what the group has committed.
func TestPropose_NotBeforeFirstEntryOfTerm(t *testing.T) {
	r := newRig(t).follow().lead()
	r.mustReceive(message(raftpb.MsgHeartbeat, 2, r.term+1))
	r.settle()
	r.machine = due{r.machine, 1}
	r.at = time.Second
	r.elect()
	r.mustSubmit(command(1))
	if got := r.batches(r.settle()); len(got) > 0 {
		t.Errorf("proposes %v", got)
	}
	if got := r.batches(r.acknowledge(2)); !slices.Equal(commands(got), []uint64{1}) {
		t.Errorf("proposes %v as leader", got)
	}
}

// Commands go to the leader in submissions that leave room for others in an entry; a
// large command goes alone.
func TestSubmit_SplitSubmissions(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxCalls = 100 }).follow().registered()
	const piece = inbox.MaxBatchBytes / 4
	for _, size := range []int{piece / 2, piece / 2, 1, 3 * piece, 1, piece - 1, 1} {
		r.Submit(make([]byte, size), new(quietCall), false)
	}
	out := r.effects()
	var got [][]uint64
	for _, f := range out.Forwards {
		_, seqs := forwarded(Effects{Forwards: []Forward{f}})
		got = append(got, seqs)
	}
	want := [][]uint64{{2, 3}, {4}, {5}, {6, 7}, {8}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("sent as %d, want %d", got, want)
	}
}

// A submission that does not fit into an entry is dropped.
func TestReceiveSubmission_TooLarge(t *testing.T) {
	r := newRig(t).follow().lead()
	s := command(1)
	s.Calls[0].Command = make([]byte, inbox.MaxBatchBytes)
	if r.mustSubmit(s); !r.inbox.Empty() {
		t.Error("taken in")
	}
}

// A lagging member is sent a snapshot, again after a failure, and not while one is being
// sent.
func TestSnapshot_SentUntilReceived(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Keep = 1 }).follow()
	r.grow(10, 0)
	r.lead()
	sent := func(event func()) (to []uint64) {
		event()
		out := r.effects()
		r.mustReceive(message(raftpb.MsgHeartbeatResp, 3, r.term))
		for _, m := range slices.Concat(out.Snapshots, r.effects().Snapshots) {
			to = append(to, m.GetTo())
		}
		return to
	}
	lost := func() {
		m := message(raftpb.MsgAppResp, 3, r.term, following(r.last-1, 0))
		m.Reject, m.RejectHint = new(true), new(uint64(1))
		r.mustReceive(m)
	}
	for _, test := range []struct {
		name  string
		event func()
		want  []uint64
	}{
		{"the log is compacted", lost, []uint64{3}},
		{"being sent", func() { r.Tick() }, nil},
		{"failed", func() { r.SnapshotSent(3, false) }, []uint64{3}},
		{"being sent again", func() { r.Tick() }, nil},
		{"received", func() { r.SnapshotSent(3, true) }, nil},
	} {
		if got := sent(test.event); !slices.Equal(got, test.want) {
			t.Fatalf("%s: sent to %d, want %d", test.name, got, test.want)
		}
	}
}

// The message of a snapshot describes the state on the disk, and raft's own message is
// unchanged.
func TestSnapshot_Message(t *testing.T) {
	asked := snapshotMessage(50)
	before := proto.CloneOf(asked)
	conf := &raftpb.ConfState{Voters: []uint64{1, 2}}
	got := Snapshot(asked, &raftlog.View{Applied: raftlog.Applied{Index: 60, Term: 4}, ConfState: conf})
	meta := got.GetSnapshot().GetMetadata()
	if meta.GetIndex() != 60 || meta.GetTerm() != 4 || !proto.Equal(meta.GetConfState(), conf) || got.GetTo() != asked.GetTo() || got.GetTerm() != asked.GetTerm() {
		t.Errorf("sends %v", got)
	}
	if !proto.Equal(asked, before) {
		t.Errorf("raft's message has become %v", asked)
	}
}

// A leader that was paused moves group time by two ticks at most.
func TestGroupTime_PauseIsCapped(t *testing.T) {
	r := newRig(t).follow().lead()
	r.at = time.Hour
	r.mustSubmit(command(1))
	if got := r.batches(r.settle()); len(got) != 1 || got[0].GetTime() != r.machine.Now()+int64(2*tick) {
		t.Errorf("proposes %v where group time was %d", got, r.machine.Now())
	}
}

// A peer forwards its own commands only.
func TestReceiveSubmission_OfAnotherMember(t *testing.T) {
	r := newRig(t).follow().lead()
	s := command(1)
	s.Member = 3
	for _, from := range []uint64{1, 2, 4} {
		if err := r.ReceiveSubmission(from, s); !errors.Is(err, ErrInadmissible) || !r.inbox.Empty() {
			t.Errorf("from member %d: %v", from, err)
		}
	}
	if err := r.ReceiveSubmission(3, s); err != nil || r.inbox.Empty() {
		t.Errorf("from its member: %v", err)
	}
}
