package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// atLevel is a machine of a group at a feature level.
type atLevel struct {
	Machine
	level uint32
}

func (m atLevel) Level() (agreed, supported uint32) { return m.level, m.level }

func level(l uint32) func(*Config) {
	return func(c *Config) { c.Machine = atLevel{machine.New(), l} }
}

// notedClient notes what it is notified of.
type notedClient struct{ notices []string }

func (c *notedClient) Notify(n *wire.Notice) {
	switch body := n.GetBody().(type) {
	case *wire.Notice_Outcome:
		c.notices = append(c.notices, fmt.Sprintf("outcome %d %v", body.Outcome.GetSeq(), body.Outcome.GetMore()))
	case *wire.Notice_Ended:
		c.notices = append(c.notices, fmt.Sprintf("ended %d", body.Ended.GetSession()[0]))
	case *wire.Notice_Recall:
		c.notices = append(c.notices, fmt.Sprintf("recall %s %t %d", body.Recall.GetLock(), body.Recall.GetShared(), body.Recall.GetShare()))
	}
}

// An attached client is notified of what concerns its incarnation, in the order of the log,
// until it is detached.
func TestClient_Notified(t *testing.T) {
	r := newRig(t, level(wire.LevelClient)).follow()
	mine, other := wire.ID{7}, wire.ID{8}
	client := new(notedClient)
	r.AttachClient(mine, client)
	outcome := func(of wire.ID, seq uint64, more bool) fact.Outcome {
		return fact.Outcome{Ticket: wire.Ticket{Incarnation: of, Seq: seq}, Member: 77, Reply: &wire.Reply{Code: wire.Code_OK}, More: more}
	}
	result := fact.Result{
		Outcomes: []fact.Outcome{outcome(mine, 1, true), outcome(other, 1, false), outcome(mine, 2, false)},
		Ended:    []fact.Ended{{Incarnation: other, Session: wire.ID{1}}, {Incarnation: mine, Session: wire.ID{2}, Outcomes: 2}},
		Recalls:  []fact.Recall{{Incarnation: other, Lock: "x"}, {Incarnation: mine, Lock: "y"}, {Incarnation: mine, Lock: "z", Shared: true, Share: 7}},
	}
	deliver := func() {
		for _, n := range r.applyResult(result).Notifications {
			if n.Client != nil {
				n.Client.Notify(n.Notice)
			}
		}
	}
	deliver()
	want := []string{"recall y false 0", "recall z true 7", "outcome 1 true", "ended 2", "outcome 2 false"}
	if !slices.Equal(client.notices, want) {
		t.Errorf("got %q, want %q", client.notices, want)
	}
	replacement := new(notedClient)
	r.AttachClient(mine, replacement)
	r.DetachClient(mine, client) // too late: the other one stays
	deliver()
	r.DetachClient(mine, replacement)
	deliver()
	if len(client.notices) != len(want) || !slices.Equal(replacement.notices, want) {
		t.Errorf("got %q and %q", client.notices, replacement.notices)
	}
}

// What a client submits goes to the leader, from the feature level of clients on, and is asked
// for again when it may have been lost.
func TestClient_Submits(t *testing.T) {
	submission := &wire.Submission{Member: 77, Incarnation: make([]byte, 16), Client: true, Calls: []*wire.Call{{Seq: 1, Command: []byte{1}}}}
	old := newRig(t).follow()
	old.SubmitForClient(submission)
	if to, _ := old.forwarded(); len(to) > 0 {
		t.Error("forwarded below the level")
	}
	r := newRig(t, level(wire.LevelClient))
	r.SubmitForClient(submission)
	if to, _ := r.forwarded(); len(to) > 0 {
		t.Error("forwarded without a leader")
	}
	r.AttachClient(wire.ID{7}, new(notedClient))
	r.follow()
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, 6)) // another leader
	if out, err := r.Take(0); err != nil || !out.Resend {
		t.Errorf("the clients are not asked to send again, %v", err)
	}
	r.SubmitForClient(submission)
	if to, _ := r.forwarded(); !slices.Equal(to, []uint64{3}) {
		t.Errorf("forwarded to %d, want the leader", to)
	}
}

// The leader takes what a member forwards for its clients at the level only.
func TestReceiveSubmission_OfClient(t *testing.T) {
	submission := &wire.Submission{Member: 77, Incarnation: make([]byte, 16), Client: true, Calls: []*wire.Call{{Seq: 1, Command: []byte{1}}}}
	old := newRig(t)
	if err := old.ReceiveSubmission(2, submission); !errors.Is(err, ErrInadmissible) {
		t.Errorf("below the level: %v", err)
	}
	r := newRig(t, level(wire.LevelClient)).lead()
	if err := r.ReceiveSubmission(2, submission); err != nil {
		t.Fatal(err)
	}
	own := &wire.Submission{Member: 2, Incarnation: append(make([]byte, 15), 1), Calls: []*wire.Call{{Seq: 1, Command: []byte{1}}}}
	if err := r.ReceiveSubmission(2, own); err != nil {
		t.Fatal(err)
	}
	if err := r.ReceiveSubmission(2, &wire.Submission{Member: 77, Incarnation: make([]byte, 16)}); !errors.Is(err, ErrInadmissible) {
		t.Errorf("in the name of another member: %v", err)
	}
}
