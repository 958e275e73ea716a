package core

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// claim has members send a digest of index that differs from the core's by difference.
func (r *rig) claim(index, difference uint64, from ...uint64) {
	r.t.Helper()
	own := r.digests.kept.at(index)
	if own == nil {
		r.t.Fatalf("no digest at %d", index)
	}
	for _, id := range from {
		r.ReceiveDigest(id, &wire.Digest{Index: index, Digest: own.digest ^ difference})
	}
}

// stops reports whether the core stops since its state differs from the majority's.
func (r *rig) stops() bool {
	r.t.Helper()
	out, err := r.Take(r.at)
	if err == nil {
		r.persist(out.Batch.writes)
	}
	var diverged *DivergedError
	if errors.Is(err, ErrCorrupt) != errors.As(err, &diverged) {
		r.t.Errorf("stops with %v", err)
	}
	return err != nil
}

// A member stops if and only if a majority of all voters agree with each other and
// differ from it.
func TestArbitration_MajorityDecides(t *testing.T) {
	five := &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4, 5}}
	three := &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4, 5}}
	standby := &raftpb.ConfState{Voters: []uint64{2, 3, 4}, Learners: []uint64{1}}
	for name, test := range map[string]struct {
		conf   *raftpb.ConfState
		claims map[uint64]uint64 // difference by member
		stops  bool
	}{
		"nothing is known":                   {three, nil, false},
		"both others agree with it":          {three, map[uint64]uint64{2: 0, 3: 0}, false},
		"one differs":                        {three, map[uint64]uint64{2: 0, 3: 7}, false},
		"one differs, the other is down":     {three, map[uint64]uint64{2: 7}, false},
		"both others differ":                 {three, map[uint64]uint64{2: 7, 3: 7}, true},
		"all differ":                         {three, map[uint64]uint64{2: 7, 3: 8}, false},
		"standbys differ":                    {three, map[uint64]uint64{2: 7, 4: 7, 5: 7}, false},
		"a stranger differs":                 {three, map[uint64]uint64{2: 7, 99: 7}, false},
		"it sends itself another":            {three, map[uint64]uint64{2: 7, 1: 7}, false},
		"two of five differ":                 {five, map[uint64]uint64{2: 0, 3: 0, 4: 7, 5: 7}, false},
		"three of five differ":               {five, map[uint64]uint64{2: 0, 3: 7, 4: 7, 5: 7}, true},
		"three of five differ from it and 2": {five, map[uint64]uint64{2: 8, 3: 7, 4: 7, 5: 7}, true},
		"of five two others are up":          {five, map[uint64]uint64{4: 7, 5: 7}, false},
		"a standby, one voter differs":       {standby, map[uint64]uint64{2: 7}, false},
		"a standby, two voters differ":       {standby, map[uint64]uint64{2: 7, 3: 7}, true},
		"a standby, two voters agree":        {standby, map[uint64]uint64{2: 0, 3: 0, 4: 7}, false},
		"a standby and its only voter":       {&raftpb.ConfState{Voters: []uint64{2}, Learners: []uint64{1}}, map[uint64]uint64{2: 7}, true},
		"of two voters":                      {&raftpb.ConfState{Voters: []uint64{1, 2}}, map[uint64]uint64{2: 7}, false},
		"the only voter and its standby":     {&raftpb.ConfState{Voters: []uint64{1}, Learners: []uint64{2}}, map[uint64]uint64{2: 7}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigIn(t, test.conf).follow()
			index := r.digests.index
			for _, id := range []uint64{1, 2, 3, 4, 5, 99} {
				if difference, ok := test.claims[id]; ok {
					r.claim(index, difference, id)
				}
			}
			if got := r.stops(); got != test.stops {
				t.Errorf("stops: %t", got)
			}
		})
	}
}

// A lagging member compares when it gets to the index. What it computed from its
// state is not delivered.
func TestArbitration_ClaimsAheadOfMember(t *testing.T) {
	r := newRig(t).follow()
	for _, id := range []uint64{2, 3} {
		r.ReceiveDigest(id, &wire.Digest{Index: 6, Digest: 1})
	}
	call := new(quietCall)
	r.Submit([]byte("registration"), call, true)
	if r.stops() {
		t.Fatal("stops before it gets there")
	}
	r.machine = scripted{r.machine, map[uint64]fact.Result{5: {Outcomes: []fact.Outcome{{
		Ticket: wire.Ticket{Incarnation: r.incarnation, Seq: 1}, Member: r.id, Reply: &wire.Reply{Code: wire.Code_OK},
	}}}}}
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(6, 5), commit(6)))
	if !r.stops() {
		t.Fatalf("does not stop at %d", r.applied)
	}
	if r.Abandon(ErrCorrupt); call.fails != 1 || !errors.Is(call.failed, ErrCorrupt) {
		t.Errorf("the call failed %d times, with %v", call.fails, call.failed)
	}
}

// A leader in the minority transfers leadership to a voter of the majority, and stops
// when another member leads, or after an election timeout.
func TestArbitration_LeaderStepsDown(t *testing.T) {
	for name, finish := range map[string]func(*rig){
		"another voter campaigns": func(r *rig) {
			r.mustReceive(message(raftpb.MsgVote, 3, r.term+1, following(r.last, r.term), func(m *raftpb.Message) { m.Context = []byte("CampaignTransfer") }))
		},
		"no other voter does": func(r *rig) {
			for range electionTicks {
				r.Tick()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4, 5}}).follow()
			r.elect5()
			r.ReceiveSubmission(2, command(1))
			r.claim(r.digests.index, 0, 2)
			r.claim(r.digests.index, 7, 3, 4, 5)
			if r.stops() {
				t.Fatal("stops while it leads")
			}
			out, err := r.Take(r.at)
			if err != nil || len(r.batches(out.Messages)) > 0 {
				t.Fatalf("%v, sends %v", err, out.Messages)
			}
			finish(r)
			if !r.stops() {
				t.Error("does not stop then")
			}
		})
	}
}

// elect5 makes the core the leader of five, with everything applied.
func (r *rig) elect5() {
	r.t.Helper()
	r.ignore(r.node.Campaign())
	for range 3 {
		for _, m := range r.settle() {
			switch m.GetType() {
			case raftpb.MsgPreVote:
				r.mustReceive(message(raftpb.MsgPreVoteResp, m.GetTo(), m.GetTerm()))
			case raftpb.MsgVote:
				r.mustReceive(message(raftpb.MsgVoteResp, m.GetTo(), m.GetTerm()))
			}
		}
	}
	for _, id := range []uint64{2, 3, 4, 5} {
		r.mustReceive(message(raftpb.MsgAppResp, id, r.term, following(r.last, 0)))
	}
	r.settle()
	if !r.isLeader() || r.applied != r.last {
		r.t.Fatalf("role %v, applied %d of %d", r.role, r.applied, r.last)
	}
}

// The transfer goes to a voter of the majority.
func TestArbitration_SuccessorAgrees(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4, 5}}).follow()
	r.elect5()
	r.claim(r.digests.index, 0, 2)
	r.claim(r.digests.index, 7, 3, 4, 5)
	out, err := r.Take(r.at)
	if to := kinds(out.Messages, raftpb.MsgTimeoutNow); err != nil || !slices.Equal(to, []uint64{3}) {
		t.Errorf("%v, transfers to %v", err, to)
	}
}

// sent returns the indexes of the digests sent, and to which members.
func sent(out Effects) (indexes, to []uint64) {
	for _, m := range out.Digests {
		indexes, to = append(indexes, m.Digest.GetIndex()), append(to, m.To)
	}
	return slices.Compact(indexes), slices.Compact(to)
}

// A voter sends its digest to all members: at each multiple of the stride, at the index
// of another's once, and when it has sent none for an election timeout. A standby sends
// none.
func TestArbitration_Sends(t *testing.T) {
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}).follow()
	r.mustReceive(message(raftpb.MsgApp, 2, 5, following(6, 5), commit(6)))
	want := func(what string, want ...uint64) {
		t.Helper()
		index, to := sent(r.effects())
		if !slices.Equal(index, want) || len(want) > 0 && !slices.Equal(to[:3], []uint64{2, 3, 4}) {
			t.Errorf("%s: sends the digest of %v to %v", what, index, to)
		}
	}
	want("entries")
	r.claim(5, 0, 2)
	want("another voter's", 5)
	r.claim(5, 0, 3, 2)
	want("again")
	for r.last < 2*digestStride {
		r.mustReceive(message(raftpb.MsgApp, 2, 5, following(r.last, 5, empty(r.last+1, 5)), commit(r.last+1)))
		switch r.last + 1 {
		case digestStride, 2 * digestStride:
			want("a multiple", r.last+1)
		default:
			want("an entry")
		}
	}
	for range electionTicks - 1 {
		r.mustReceive(message(raftpb.MsgHeartbeat, 2, 5))
		r.Tick()
		want("a tick")
	}
	r.Tick()
	want("a timeout", r.last)
	s := newRigIn(t, &raftpb.ConfState{Voters: []uint64{2, 3}, Learners: []uint64{1}}).follow()
	s.claim(4, 0, 2, 3)
	for range 2 * electionTicks {
		s.mustReceive(message(raftpb.MsgHeartbeat, 2, 5))
		s.Tick()
		if index, to := sent(s.effects()); len(index) > 0 {
			t.Errorf("a standby sends %v to %v", index, to)
		}
	}
}

// While no majority agrees, it is logged once that voters differ. A majority settles it;
// it is logged which voter differs from that.
func TestArbitration_DisputeLogged(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }).follow()
	pass := func(ticks int) {
		for range ticks {
			r.mustReceive(message(raftpb.MsgHeartbeat, 2, 5))
			r.pass(1)
		}
	}
	count := func(line string) int { return strings.Count(log.String(), line) }
	const dispute, minority = "no majority agrees", "differs from the majority's"
	r.claim(4, 7, 3)
	pass(electionTicks)
	if n := count(dispute); n != 0 {
		t.Errorf("logged %d times before the others had time to answer", n)
	}
	pass(5 * electionTicks)
	if n := count(dispute); n != 1 {
		t.Errorf("logged %d times", n)
	}
	r.claim(4, 0, 2)
	r.claim(3, 7, 3)
	pass(5 * electionTicks)
	if d, m := count(dispute), count(minority); d != 1 || m != 1 || !strings.Contains(log.String(), "member="+wire.MemberID(3).String()) {
		t.Errorf("logged %d and %d times: %s", d, m, log.String())
	}
}

// claims returns how many members' digests the core keeps.
func (r *rig) claims() (n int) {
	for _, p := range r.peers.all {
		if p.claims != nil {
			n++
		}
	}
	return n
}

// False digests cost a bounded amount of memory, and those of a voter that is removed are
// forgotten.
func TestArbitration_MemoryBounded(t *testing.T) {
	r := newRig(t).follow()
	for i := range uint64(10_000) {
		for from := range uint64(50) {
			r.ReceiveDigest(from, &wire.Digest{Index: i * i * i, Digest: i ^ from})
		}
	}
	if n := r.claims(); n != 2 {
		t.Errorf("keeps the digests of %d members", n)
	}
	r.membershipChanged(&raftpb.ConfState{Voters: []uint64{1, 2}})
	if n := r.claims(); n != 1 {
		t.Errorf("keeps the digests of %d members after a removal", n)
	}
	if r.stops() {
		t.Error("stops")
	}
}
