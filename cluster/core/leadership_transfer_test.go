package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/conclave-go/conclave/internal/wire"
)

// A transfer is answered once, and at once if it is impossible.
func TestTransfer_Answered(t *testing.T) {
	pending := errors.New("no answer yet")
	leads := func(from uint64) func(*rig) {
		return func(r *rig) { r.mustReceive(message(raftpb.MsgHeartbeat, from, r.term+1)) }
	}
	for name, test := range map[string]struct {
		follows bool // and is to step down
		to      uint64
		asked   uint64 // the successor that raft is given
		then    func(*rig)
		want    error
	}{
		"a follower steps down":   {follows: true, want: ErrNotLeader},
		"to itself":               {to: 1},
		"to an unknown member":    {to: 9, want: ErrNoSuccessor},
		"under way":               {to: 3, asked: 3, want: pending},
		"to the most up to date":  {asked: 2, want: pending},
		"done":                    {to: 3, asked: 3, then: leads(3)},
		"another was elected":     {to: 3, asked: 3, then: leads(2)},
		"no leader yet":           {to: 3, asked: 3, then: func(r *rig) { r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term+1)); r.settle(); r.pass(2) }, want: pending},
		"one tick before the end": {to: 3, asked: 3, then: func(r *rig) { r.pass(electionTicks-1, 2) }, want: pending},
		"no answer":               {to: 3, asked: 3, then: func(r *rig) { r.pass(electionTicks, 2) }, want: ErrNoSuccessor},
		"elected again meanwhile": {to: 3, asked: 3, then: func(r *rig) {
			r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term+1))
			r.settle()
			r.lead().pass(1, 2)
		}, want: ErrNoSuccessor},
		"member stops": {to: 3, asked: 3, then: func(r *rig) { r.Abandon(errUnanswered) }, want: errUnanswered},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).inRole(!test.follows)
			done := make(chan error, 2)
			if test.follows {
				r.StepDown(done)
			} else {
				r.Transfer(test.to, done)
			}
			if got := r.node.BasicStatus().LeadTransferee; got != test.asked {
				t.Errorf("successor %d, want %d", got, test.asked)
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
				t.Errorf("answered %v, want %v; and %d more", got, test.want, len(done))
			}
		})
	}
}

// Leadership may be lost since the last Ready. raft would then forward the request to
// the new leader in the successor's name. (Seed 19909.)
func TestTransfer_LeadershipJustLost(t *testing.T) {
	r := newRig(t).follow().lead()
	r.mustReceive(message(raftpb.MsgHeartbeat, 2, r.term+1))
	done := make(chan error, 1)
	r.StepDown(done)
	for _, m := range r.settle() {
		if m.GetType() == raftpb.MsgTransferLeader {
			t.Errorf("sends %v", m)
		}
	}
	if err := <-done; !errors.Is(err, ErrNotLeader) {
		t.Errorf("answered %v", err)
	}
}

// transfers describes the transfer messages in effects.
func transfers(e Effects) (sent []string) {
	for _, m := range e.Transfers {
		sent = append(sent, fmt.Sprintf("to %d: %d in term %d, refused %t", m.To, m.Transfer.GetTo(), m.Transfer.GetTerm(), m.Transfer.GetRefused()))
	}
	return sent
}

// A member that does not lead sends the leader a request, retries it, and is done when
// another member leads.
func TestTransfer_RequestedFromLeader(t *testing.T) {
	request := []string{"to 2: 3 in term 5, refused false"}
	for name, test := range map[string]struct {
		then func(*rig)
		want error
	}{
		"another leads":           {func(r *rig) { r.mustReceive(message(raftpb.MsgHeartbeat, 3, 6)) }, nil},
		"the leader refuses":      {func(r *rig) { r.ReceiveTransfer(2, &wire.LeadershipTransfer{To: 3, Term: 5, Refused: true}) }, ErrNoSuccessor},
		"member stops":            {func(r *rig) { r.Abandon(errUnanswered) }, errUnanswered},
		"another peer refuses":    {func(r *rig) { r.ReceiveTransfer(3, &wire.LeadershipTransfer{To: 3, Term: 5, Refused: true}) }, errPending},
		"another term is refused": {func(r *rig) { r.ReceiveTransfer(2, &wire.LeadershipTransfer{To: 3, Term: 4, Refused: true}) }, errPending},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).follow()
			done := make(chan error, 2)
			r.Transfer(3, done)
			if sent := transfers(r.effects()); !slices.Equal(sent, request) {
				t.Fatalf("sends %q, want %q", sent, request)
			}
			if sent := transfers(r.effects()); len(sent) > 0 {
				t.Fatalf("sends %q again at once", sent)
			}
			for range electionTicks {
				r.mustReceive(message(raftpb.MsgHeartbeat, 2, 5))
				r.Tick()
			}
			if sent := transfers(r.effects()); !slices.Equal(sent, request) {
				t.Fatalf("repeats %q, want %q", sent, request)
			}
			test.then(r)
			r.settle()
			got := errPending
			if len(done) > 0 {
				got = <-done
			}
			if got != test.want || len(done) > 0 {
				t.Errorf("answered %v, want %v; and %d more", got, test.want, len(done))
			}
		})
	}
}

var errPending = errors.New("no answer yet")

// A request waits for a leader. It is done if that is the requested one, and sent again
// to a leader that is elected in another term.
func TestTransfer_RequestWaitsForLeader(t *testing.T) {
	r := newRig(t)
	done := make(chan error, 2)
	r.Transfer(3, done)
	if sent := transfers(r.effects()); len(sent) > 0 {
		t.Fatalf("sends %q without a leader", sent)
	}
	r.follow()
	r.mustReceive(message(raftpb.MsgHeartbeat, 2, 6))
	if sent, want := transfers(r.effects()), []string{"to 2: 3 in term 6, refused false"}; !slices.Equal(sent, want) {
		t.Fatalf("sends %q, want %q", sent, want)
	}
	r.AbandonTransfer(done)
	r.Transfer(2, done)
	r.settle()
	if len(done) != 1 || <-done != nil {
		t.Fatal("no answer, and 2 leads")
	}
}

// A leader transfers once for each request, however often it is repeated, in its own
// term only, and answers when it cannot.
func TestTransfer_ReceivedByLeader(t *testing.T) {
	r := newRig(t).follow().lead()
	ask := func(to, term uint64) []string {
		r.ReceiveTransfer(2, &wire.LeadershipTransfer{To: to, Term: term})
		return transfers(r.effects())
	}
	if sent := ask(3, r.term-1); len(sent) > 0 || r.node.BasicStatus().LeadTransferee != raft.None {
		t.Fatalf("acts on a request of an earlier term: %q", sent)
	}
	if sent, want := ask(9, r.term), []string{fmt.Sprintf("to 2: 9 in term %d, refused true", r.term)}; !slices.Equal(sent, want) {
		t.Fatalf("answers %q, want %q", sent, want)
	}
	for range 3 {
		if sent := ask(3, r.term); len(sent) > 0 || r.node.BasicStatus().LeadTransferee != 3 || len(r.transfers) != 1 {
			t.Fatalf("sends %q, transfers to %d, %d transfers", sent, r.node.BasicStatus().LeadTransferee, len(r.transfers))
		}
	}
	var sent []string
	for range electionTicks {
		r.Tick()
		r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term))
		sent = append(sent, transfers(r.effects())...)
	}
	if want := []string{fmt.Sprintf("to 2: 3 in term %d, refused true", r.term)}; !slices.Equal(sent, want) {
		t.Fatalf("gives up with %q, want %q", sent, want)
	}
}

// A member steps down to another voter that is up to date, or not at all.
func TestStepDownTo(t *testing.T) {
	pending := errors.New("no answer yet")
	for name, test := range map[string]struct {
		follows bool
		first   func(*rig)
		to      uint64
		asked   uint64 // the successor that raft is given
		want    error
	}{
		"a follower":                 {follows: true, to: 3, want: ErrNotLeader},
		"to itself":                  {to: 1, want: ErrTransferRefused},
		"to an unknown member":       {to: 9, want: ErrTransferRefused},
		"to a voter never heard":     {to: 3, want: ErrTransferRefused},
		"to a voter up to date":      {to: 2, asked: 2, want: pending},
		"to a voter that is silent":  {first: func(r *rig) { r.pass(electionTicks, 3) }, to: 2, want: ErrTransferRefused},
		"another transfer is asked":  {first: func(r *rig) { r.Transfer(3, make(chan error, 1)) }, to: 2, asked: 3, want: ErrTransferRefused},
		"the same transfer is asked": {first: func(r *rig) { r.Transfer(2, make(chan error, 1)) }, to: 2, asked: 2, want: ErrTransferRefused},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).inRole(!test.follows)
			if test.first != nil {
				test.first(r)
			}
			done := make(chan error, 2)
			r.StepDownTo(test.to, done)
			if got := r.node.BasicStatus().LeadTransferee; got != test.asked {
				t.Errorf("successor %d, want %d", got, test.asked)
			}
			r.settle()
			got := pending
			if len(done) > 0 {
				got = <-done
			}
			if got != test.want || len(done) > 0 {
				t.Errorf("answered %v, want %v; and %d more", got, test.want, len(done))
			}
		})
	}
}

// The leader proposes nothing while the voter catches up. So a voter that lacks many megabytes is not up to date, however few entries these are.
func TestStepDownTo_LacksLargeEntries(t *testing.T) {
	for name, test := range map[string]struct {
		lacks int // entries of 128 KiB
		want  bool
	}{"5 MiB": {40, false}, "1 MiB": {8, true}} {
		r := newRig(t).inRole(true)
		for range test.lacks {
			if err := r.node.Propose(append([]byte{entryVersion}, make([]byte, 128<<10)...)); err != nil {
				t.Fatal(err)
			}
			r.settle()
		}
		r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, following(r.last, 0)))
		r.settle()
		r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term))
		if p := r.node.Status().Progress[2]; r.applied != r.last || p.Match != r.last-uint64(test.lacks) {
			t.Fatalf("%s: applied %d of %d, the voter has %d", name, r.applied, r.last, p.Match)
		}
		r.StepDownTo(2, make(chan error, 1))
		if asked := r.node.BasicStatus().LeadTransferee == 2; asked != test.want {
			t.Errorf("%s: the transfer has begun: %t", name, asked)
		}
	}
}

// A member that steps down to a voter learns whether that one leads next; a transfer that names a voter ends with any.
func TestStepDownTo_AnotherLeads(t *testing.T) {
	for next, want := range map[uint64]error{2: nil, 3: ErrNoSuccessor} {
		r := newRig(t).inRole(true)
		only, any := make(chan error, 1), make(chan error, 1)
		r.StepDownTo(2, only)
		r.Transfer(2, any)
		r.settle()
		r.mustReceive(message(raftpb.MsgHeartbeat, next, r.term+1))
		r.settle()
		if len(only) != 1 || len(any) != 1 {
			t.Fatalf("%d leads: no answers", next)
		}
		if got, other := <-only, <-any; got != want || other != nil {
			t.Errorf("%d leads: answered %v and %v, want %v and nil", next, got, other, want)
		}
	}
}

// A member is current that needs no more than a few messages.
func TestIsCurrent(t *testing.T) {
	n := &raftNode{applied: 5000}
	for _, test := range []struct {
		state tracker.StateType
		match uint64
		want  bool
	}{
		{tracker.StateReplicate, 5000, true}, {tracker.StateReplicate, 5000 - maxLag, true}, {tracker.StateReplicate, 5000 - maxLag - 1, false},
		{tracker.StateProbe, 5000, false}, {tracker.StateSnapshot, 5000, false},
	} {
		if got := n.isCurrent(tracker.Progress{State: test.state, Match: test.match}); got != test.want {
			t.Errorf("%v at %d: %t", test.state, test.match, got)
		}
	}
}

// Of the transfers that callers wait for, and that each step looks at, there are few. A member that
// steps down is not refused for them.
func TestTransfer_Limit(t *testing.T) {
	for name, leader := range map[string]bool{"of a follower": false, "of a leader": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).inRole(leader)
			begin := func() error {
				done := make(chan error, 1)
				if r.Transfer(3, done); len(done) == 0 {
					return nil
				}
				return <-done
			}
			for n := range maxTransfers {
				if err := begin(); err != nil {
					t.Fatal(n, err)
				}
			}
			if err := begin(); !errors.Is(err, ErrTooManyTransfers) || len(r.requests)+len(r.transfers) > maxTransfers {
				t.Errorf("one too many: %v; %d requests, %d transfers", err, len(r.requests), len(r.transfers))
			}
			if done := make(chan error, 1); leader {
				if r.StepDown(done); len(done) > 0 {
					t.Errorf("stepping down: %v", <-done)
				}
			}
		})
	}
}

// A member that loses leadership and is elected again executes a request of its new term, also if
// the same one was under way before. It refuses nothing in the name of a term in which it was not
// requested.
func TestTransfer_RequestOfEarlierTerm(t *testing.T) {
	r := newRig(t).follow().lead()
	request := func() { r.ReceiveTransfer(2, &wire.LeadershipTransfer{To: 3, Term: r.term}) }
	request()
	former := r.term
	r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term+1)) // of a candidate that was not elected
	r.settle()
	r.lead()
	request()
	if to := r.node.BasicStatus().LeadTransferee; to != 3 {
		t.Fatalf("transfers to %d", to)
	}
	var sent []string
	for range electionTicks + 1 {
		r.Tick()
		r.mustReceive(message(raftpb.MsgHeartbeatResp, 2, r.term))
		sent = append(sent, transfers(r.effects())...)
	}
	want := []string{fmt.Sprintf("to 2: 3 in term %d, refused true", former), fmt.Sprintf("to 2: 3 in term %d, refused true", r.term)}
	if !slices.Equal(sent, want) {
		t.Errorf("sends %q, want %q", sent, want)
	}
}
