package core

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// findingCall is a call that finds its outcome in the state, or does not.
type findingCall struct {
	quietCall
	reply  *wire.Reply
	ticket wire.Ticket // that it looked for
}

func (c *findingCall) Recheck(_ wire.Rechecker, t wire.Ticket) *wire.Reply {
	c.ticket = t
	return c.reply
}

// Entries compacted into a snapshot are never applied here. Calls that await a grant look
// it up in the installed state, and pending commands are retried.
func TestRecheck_AfterSnapshot(t *testing.T) {
	r := newRig(t).follow()
	granted, waiting := &findingCall{reply: &wire.Reply{Fence: 7}}, new(findingCall)
	r.tickets = tickets.New[Call]()
	for i, call := range []Call{granted, waiting} {
		r.tickets.Add([]byte{1}, call, false)
		r.tickets.Issue(0)
		r.tickets.Outcome(uint64(i+1), true)
	}
	r.Submit([]byte{1}, new(quietCall), false)
	if out, err := r.Take(0); err != nil || len(out.Forwards) != 1 {
		t.Fatalf("%d submissions, %v", len(out.Forwards), err)
	}
	r.installation.installing = &Staged{Done: func(error) {}}
	r.installed(machine.New(), raftlog.Install{Index: 9, Term: 5, ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}})
	out, err := r.Take(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Notifications) != 1 || out.Notifications[0].Call != Call(granted) || out.Notifications[0].Reply.GetFence() != 7 {
		t.Errorf("notifications %+v; want the grant alone", out.Notifications)
	}
	for seq, c := range map[uint64]*findingCall{1: granted, 2: waiting} {
		if want := (wire.Ticket{Incarnation: r.incarnation, Seq: seq}); c.ticket != want {
			t.Errorf("looks for %v, not %v", c.ticket, want)
		}
	}
	if awaiting := r.tickets.AwaitingInOrder(); !slices.Equal(awaiting, []uint64{2}) {
		t.Errorf("awaited: %v", awaiting)
	}
	if len(out.Forwards) != 1 || !out.Restored {
		t.Errorf("%d submissions, restored %v", len(out.Forwards), out.Restored)
	}
}
