package core

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// scripted is a machine that yields what it is told for each entry.
type scripted struct {
	Machine
	results map[uint64]wire.Result
}

func (s scripted) Apply(index, _ uint64, _ []byte) wire.Result { return s.results[index] }

// What entries changed is reported in their order, each time before their
// outcomes, and entries that changed nothing are not reported.
func TestChangesComeBeforeOutcomes(t *testing.T) {
	r := newRig(t).follow()
	t1, t2 := wire.Ticket{Incarnation: r.incarnation, Seq: 1}, wire.Ticket{Incarnation: r.incarnation, Seq: 2}
	key := func(index uint64) wire.KeyChange {
		return wire.KeyChange{Index: index, Entry: &wire.Entry{Key: "k", ModifyIndex: index}}
	}
	leader := wire.LeaderChange{Election: "e", Leader: &wire.Leader{Fence: 1}}
	r.machine = scripted{r.machine, map[uint64]wire.Result{
		5: {Keys: []wire.KeyChange{key(5), key(6)}, Outcomes: []wire.Outcome{{Ticket: t1, Reply: &wire.Reply{}}}},
		7: {Leaders: []wire.LeaderChange{leader}, Outcomes: []wire.Outcome{{Ticket: t2, Reply: &wire.Reply{}}},
			Ended: []wire.Ended{{Session: wire.ID{3}}}},
	}}
	for range 2 {
		r.Submit([]byte{1}, new(quietCall), false)
	}
	r.mustReceive(message(raftpb.MsgApp, 2, 5, behind(6, 5, empty(7, 5)), commit(7)))
	var got []string
	for _, n := range r.effects().news {
		switch {
		case len(n.keys) == 2 && n.keys[0].Index == 5 && n.keys[1].Index == 6:
			got = append(got, "keys")
		case len(n.leaders) == 1 && n.leaders[0] == leader:
			got = append(got, "leaders")
		case n.call != nil:
			got = append(got, "outcome")
		case n.ended.Session == wire.ID{3}:
			got = append(got, "ended")
		}
	}
	if want := []string{"keys", "outcome", "leaders", "outcome", "ended"}; !slices.Equal(got, want) {
		t.Fatalf("the news are %q, not %q", got, want)
	}
}

// A read of the local state runs where nobody else is there, and in the round
// in which it was asked for.
func TestLookNeedsNobody(t *testing.T) {
	r := newRig(t)
	if err := r.Look(numberedRead(1)); err != nil {
		t.Fatal(err)
	}
	out, err := r.Take(0)
	if err != nil || len(out.reads) != 1 || out.reads[0] != Read(numberedRead(1)) {
		t.Fatalf("%d reads, %v", len(out.reads), err)
	}
}
