package core

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

func kinds(messages []*raftpb.Message, kind raftpb.MessageType) (to []uint64) {
	for _, m := range messages {
		if m.GetType() == kind {
			to = append(to, m.GetTo())
		}
	}
	return to
}

// Whoever asks for another leader hears once what came of it: at once, where
// nothing can.
func TestTransfersAreAnswered(t *testing.T) {
	pending := errors.New("no answer yet")
	leads := func(from uint64) func(*rig) {
		return func(r *rig) { r.mustReceive(message(raftpb.MsgHeartbeat, from, r.term+1)) }
	}
	for name, test := range map[string]struct {
		follows bool // who is asked
		to      uint64
		asked   uint64 // who is to lead
		then    func(*rig)
		want    error
	}{
		"a follower":              {follows: true, to: 3, want: ErrNotLeader},
		"to itself":               {to: 1},
		"to a stranger":           {to: 9, want: ErrNoSuccessor},
		"under way":               {to: 3, asked: 3, want: pending},
		"to whoever is furthest":  {asked: 2, want: pending},
		"done":                    {to: 3, asked: 3, then: leads(3)},
		"another was elected":     {to: 3, asked: 3, then: leads(2)},
		"no leader yet":           {to: 3, asked: 3, then: func(r *rig) { r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term+1)); r.settle(); r.pass(2) }, want: pending},
		"one tick before the end": {to: 3, asked: 3, then: func(r *rig) { r.pass(electionTicks-1, 2) }, want: pending},
		"no answer":               {to: 3, asked: 3, then: func(r *rig) { r.pass(electionTicks, 2) }, want: ErrNoSuccessor},
		"elected anew meanwhile": {to: 3, asked: 3, then: func(r *rig) {
			r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term+1))
			r.settle()
			r.lead().pass(1, 2)
		}, want: ErrNoSuccessor},
		"the end of the process": {to: 3, asked: 3, then: func(r *rig) { r.Abandon(errUnanswered) }, want: errUnanswered},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).as(!test.follows)
			done := make(chan error, 2)
			r.Transfer(test.to, done)
			if got := r.node.BasicStatus().LeadTransferee; got != test.asked {
				t.Errorf("%d is to lead, want %d", got, test.asked)
			}
			r.settle()
			if test.then != nil {
				test.then(r)
				r.settle()
			}
			got := pending
			if len(done) > 0 {
				got = <-done
			}
			if got != test.want || len(done) > 0 {
				t.Errorf("heard %v, want %v; and %d more", got, test.want, len(done))
			}
		})
	}
}

// The office may be lost since the last look. raft would then pass the request on to
// the new leader, in the name of who was to get it. (Seed 19909.)
func TestATransferAfterTheOfficeIsLost(t *testing.T) {
	r := newRig(t).follow().lead()
	r.mustReceive(message(raftpb.MsgHeartbeat, 2, r.term+1))
	done := make(chan error, 1)
	r.Transfer(3, done)
	for _, m := range r.settle() {
		if m.GetType() == raftpb.MsgTransferLeader {
			t.Errorf("sends %v", m)
		}
	}
	if err := <-done; !errors.Is(err, ErrNotLeader) {
		t.Errorf("is told %v", err)
	}
}

// Leadership goes to the voter that has most of the log among those that were
// heard lately, and if none was, to the one that has most of it.
func TestSuccessor(t *testing.T) {
	type peer struct {
		behind uint64
		heard  bool
	}
	for name, test := range map[string]struct {
		second, third peer
		want          uint64
	}{
		"alike":                       {peer{0, true}, peer{0, true}, 2},
		"the second is further":       {peer{0, true}, peer{1, true}, 2},
		"the third is further":        {peer{1, true}, peer{0, true}, 3},
		"the second, but silent":      {peer{0, false}, peer{1, true}, 3},
		"the third, but silent":       {peer{1, true}, peer{0, false}, 2},
		"alike, the second is silent": {peer{0, false}, peer{0, true}, 3},
		"alike, the third is silent":  {peer{0, true}, peer{0, false}, 2},
		"nobody is heard":             {peer{1, false}, peer{0, false}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			const learner = 4
			r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{learner}}).follow().lead()
			r.ReceiveSubmission(&wire.Submission{Incarnation: make([]byte, 16), Calls: []*wire.Call{{Seq: 1}}})
			r.settle()
			r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, behind(r.last-test.second.behind, 0)))
			r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, behind(r.last-test.third.behind, 0)))
			r.mustReceive(message(raftpb.MsgAppResp, learner, r.term, behind(r.last, 0)))
			// raft forgets whom it has heard, once in each election timeout.
			for r.node.Status().Progress[3].RecentActive {
				r.pass(1)
			}
			r.mustReceive(message(raftpb.MsgHeartbeatResp, learner, r.term))
			for id, heard := range map[uint64]bool{2: test.second.heard, 3: test.third.heard} {
				if heard {
					r.mustReceive(message(raftpb.MsgHeartbeatResp, id, r.term))
				}
			}
			if got := r.successor(r.conf.GetVoters()); got != test.want {
				t.Errorf("%d is to lead, want %d", got, test.want)
			}
		})
	}
}

// A leader whose disk hangs hands over after an election timeout, and again after
// each further one. A follower has nothing to hand over.
func TestALeaderWithAStuckDiskHandsOver(t *testing.T) {
	r := newRig(t).follow().lead()
	if asked := kinds(r.pass(3*electionTicks, 2), raftpb.MsgTimeoutNow); len(asked) > 0 {
		t.Fatalf("hands over to %d when there is nothing to write", asked)
	}
	r.ReceiveSubmission(&wire.Submission{Incarnation: make([]byte, 16), Calls: []*wire.Call{{Seq: 1}}})
	out, err := r.Take(0)
	if err != nil || len(out.writes) == 0 {
		t.Fatalf("%d writes, %v", len(out.writes), err)
	}
	r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, behind(r.last, 0)))
	for round := range 3 {
		if asked := kinds(r.pass(electionTicks-1, 2), raftpb.MsgTimeoutNow); len(asked) > 0 {
			t.Fatalf("round %d: hands over to %d too soon", round, asked)
		}
		if asked := kinds(r.pass(1, 2), raftpb.MsgTimeoutNow); !slices.Equal(asked, []uint64{2}) {
			t.Fatalf("round %d: hands over to %d", round, asked)
		}
	}
	r.carry(out.writes)
	r.settle()
	if asked := kinds(r.pass(3*electionTicks, 2), raftpb.MsgTimeoutNow); len(asked) > 0 {
		t.Errorf("hands over to %d with a disk that is well", asked)
	}
}

// A member whose connection from the leader has broken campaigns shortly after,
// and well before an election timeout. Unless the leader is heard again.
func TestTheLeadersConnectionBreaks(t *testing.T) {
	soon := 4
	asks := func(r *rig) (at int) {
		for at = 1; at <= soon; at++ {
			if len(kinds(r.pass(1), raftpb.MsgPreVote)) > 0 {
				return at
			}
		}
		return 0
	}
	delays := make(map[int]bool)
	for seed := range uint64(20) {
		r := newRig(t, func(c *Config) { c.Rand = rand.New(rand.NewPCG(seed, 1)) }).follow()
		r.Lost(2)
		if sent := r.settle(); len(sent) > 0 || r.Status().Leader != raft.None {
			t.Fatalf("led by %d, sends %v", r.Status().Leader, sent)
		}
		delay := asks(r)
		if delay == 0 {
			t.Fatalf("no campaign in %d ticks", soon)
		}
		delays[delay] = true
	}
	if len(delays) < 2 {
		t.Errorf("all campaign at once: after %v ticks", delays)
	}
	for name, event := range map[string]func(*rig){
		"another's":        func(r *rig) { r.Lost(3) },
		"but it lives":     func(r *rig) { r.Lost(2); r.settle(); r.mustReceive(message(raftpb.MsgHeartbeat, 2, 5)) },
		"and another came": func(r *rig) { r.Lost(2); r.settle(); r.mustReceive(message(raftpb.MsgHeartbeat, 3, 6)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).follow()
			event(r)
			r.settle()
			if at := asks(r); at != 0 || r.Status().Leader == raft.None {
				t.Errorf("campaigns at tick %d, led by %d", at, r.Status().Leader)
			}
		})
	}
}

// The first founder of a group asks for votes until there is a leader, each time
// leaving the votes more time to come. One who is alone elects itself.
func TestStand(t *testing.T) {
	r := newRig(t)
	r.Stand(false)
	if sent := r.settle(); len(sent) > 0 {
		t.Errorf("stands in a group of three: %v", sent)
	}
	r.Stand(true)
	if len(kinds(r.settle(), raftpb.MsgPreVote)) == 0 {
		t.Fatal("does not stand")
	}
	asked := make(map[int]bool)
	for tick := 1; tick <= 40; tick++ {
		asked[tick] = len(kinds(r.pass(1), raftpb.MsgPreVote)) > 0
	}
	own := []int{1, 3, 7, 15, 25, 35}
	for _, tick := range own {
		if !asked[tick] {
			t.Errorf("does not ask again at tick %d", tick)
		}
		delete(asked, tick)
	}
	maps.DeleteFunc(asked, func(_ int, asks bool) bool { return !asks })
	if len(asked) > 40/electionTicks { // raft's own, at random
		t.Errorf("asks at the ticks %v as well", slices.Sorted(maps.Keys(asked)))
	}

	led := newRig(t)
	led.Stand(true)
	led.settle()
	led.mustReceive(message(raftpb.MsgHeartbeat, 2, 5))
	led.settle()
	led.Lost(2)
	asks := 0
	for range electionTicks - 1 {
		if len(kinds(led.pass(1), raftpb.MsgPreVote)) > 0 {
			asks++
		}
	}
	if asks != 1 {
		t.Errorf("stands on when there was a leader: asks %d times", asks)
	}

	alone := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1}, Learners: []uint64{2}})
	alone.Stand(false)
	if alone.settle(); !alone.Status().Leads {
		t.Error("does not lead a group of one")
	}
}
