package core

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// confirming is a leader with a snapshot of its applied state for member 3.
type confirming struct {
	*rig
	sends   bool
	refused error
}

func newConfirming(t *testing.T) *confirming {
	t.Helper()
	r := &confirming{rig: newRig(t, func(c *Config) { c.Keep = 2 }).follow()}
	r.behind()
	r.ConfirmSnapshot(3, r.applied, func(err error) {
		if r.sends || r.refused != nil {
			t.Error("a snapshot is confirmed or refused twice")
		}
		r.sends, r.refused = err == nil, err
	})
	return r
}

func (r *confirming) want(when string, sends, refused bool) {
	r.t.Helper()
	if r.sends != sends || errors.Is(r.refused, ErrUnconfirmed) != refused {
		r.t.Errorf("%s: sends the snapshot: %t, refused: %v", when, r.sends, r.refused)
	}
}

// The core asks the other voters for their digests at once, and sends the snapshot when a
// majority has agreed at its index or later.
func TestConfirmSnapshot_Agreement(t *testing.T) {
	r := newConfirming(t)
	if index, to := sent(r.effects()); !slices.Equal(index, []uint64{r.applied}) || !slices.Equal(to, []uint64{2, 3}) {
		t.Errorf("sends the digest of %d to %d, want that of %d", index, to, r.applied)
	}
	r.claim(r.applied-1, 0, 2)
	r.effects()
	r.want("after an agreement at an earlier index", false, false)
	r.claim(r.applied, 0, 2)
	r.effects()
	r.want("after an agreement", true, false)

	confirmed := false
	r.ConfirmSnapshot(3, r.applied, func(err error) { confirmed = err == nil })
	if r.effects(); !confirmed {
		t.Error("a second snapshot of the same state is not sent at once")
	}
}

// While a voter differs and no majority agrees, no snapshot is sent, however long. A
// majority settles it.
func TestConfirmSnapshot_Dispute(t *testing.T) {
	r := newConfirming(t)
	r.claim(r.applied, 7, 2)
	r.effects()
	r.want("after a difference", false, true)
	r.SnapshotSent(3, false)
	asks := func() (snapshots int) {
		for range 10 * confirmationElections * electionTicks {
			r.Tick()
			for _, id := range []uint64{2, 3} {
				r.mustReceive(message(raftpb.MsgHeartbeatResp, id, r.term))
			}
			snapshots += len(r.effects().Snapshots)
		}
		return snapshots
	}
	if n := asks(); n != 0 {
		t.Errorf("%d snapshots are sent while voters differ", n)
	}
	r.claim(r.applied, 0, 3)
	if n := asks(); n != 1 {
		t.Errorf("%d snapshots are sent after a majority has agreed, want 1", n)
	}
}

// While voters differ the leader asks a member that raft wants to send a snapshot where its
// log ends: it may have what the leader's log begins with, and decides by that log.
func TestConfirmSnapshot_DisputeLogSuffices(t *testing.T) {
	r := newConfirming(t)
	r.claim(r.applied, 7, 2)
	r.effects()
	r.SnapshotSent(3, false)
	r.mustReceive(message(raftpb.MsgHeartbeatResp, 3, r.term))
	first, _ := r.log.FirstIndex()
	appends := func() (list []*raftpb.Message) {
		for _, m := range r.effects().Messages {
			if m.GetType() == raftpb.MsgApp && m.GetTo() == 3 {
				list = append(list, m)
			}
		}
		return list
	}
	if probes := appends(); len(probes) == 0 || probes[0].GetIndex() != first-1 || len(probes[0].GetEntries()) > 0 {
		t.Fatalf("probes with %v, want index %d", probes, first-1)
	}
	r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, following(first-1, 0)))
	if next := appends(); len(next) == 0 || len(next[0].GetEntries()) == 0 || next[0].GetEntries()[0].GetIndex() != first {
		t.Errorf("continues with %v, want the entries from %d", next, first)
	}
}

// Without an answer the snapshot is sent after some election timeouts. A difference that
// shows meanwhile cancels it.
func TestConfirmSnapshot_NoAnswer(t *testing.T) {
	r := newConfirming(t)
	r.pass(confirmationElections*electionTicks-1, 2)
	r.want("before the timeout", false, false)
	r.pass(1, 2)
	r.want("after the timeout", true, false)
	r.claim(r.applied, 7, 2)
	if out, err := r.Take(r.at); err != nil || !slices.Equal(out.Cancelled, []uint64{3}) {
		t.Errorf("%v; cancels the snapshots to %d after a difference", err, out.Cancelled)
	}
}

// An agreement while the snapshot is sent settles it: a later difference, which may be
// the other voter's error, does not cancel it.
func TestConfirmSnapshot_AgreementWhileSending(t *testing.T) {
	r := newConfirming(t)
	r.pass(confirmationElections*electionTicks, 2)
	r.claim(r.applied, 0, 2)
	r.effects()
	r.write(1, 10)
	r.claim(r.applied, 7, 2)
	if out, err := r.Take(r.at); err != nil || len(out.Cancelled) > 0 || r.arbitration.disputed == 0 {
		t.Errorf("%v; cancels the snapshots to %d", err, out.Cancelled)
	}
}

// A member that leads no more sends no snapshot.
func TestConfirmSnapshot_LeaderChange(t *testing.T) {
	r := newConfirming(t)
	r.mustReceive(message(raftpb.MsgHeartbeat, 2, r.term+1))
	r.effects()
	r.want("after a leader change", false, true)
}

// The removal of the differing voter ends the dispute.
func TestConfirmSnapshot_DifferingVoterRemoved(t *testing.T) {
	r := newConfirming(t)
	r.claim(r.applied, 7, 2)
	r.effects()
	r.want("after a difference", false, true)
	r.membershipChanged(&raftpb.ConfState{Voters: []uint64{1, 3}})
	if r.arbitration.contested() {
		t.Error("a removed voter is still in dispute with this one")
	}
}

// A voter that has differed from a majority is known to be wrong: there is no dispute with
// it at a later index, whichever shows first.
func TestConfirmSnapshot_WrongVoterKnown(t *testing.T) {
	for name, claims := range map[string]func(*confirming){
		"before": func(r *confirming) {
			r.claim(r.applied-1, 0, 2)
			r.claim(r.applied-1, 7, 3)
			r.claim(r.applied, 7, 3)
		},
		"afterwards": func(r *confirming) {
			r.claim(r.applied, 7, 3)
			r.claim(r.applied-1, 7, 3)
			r.claim(r.applied-1, 0, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newConfirming(t)
			claims(r)
			r.effects()
			r.want("after an agreement at an earlier index", false, false)
			r.claim(r.applied, 0, 2)
			r.effects()
			r.want("after an agreement", true, false)
		})
	}
}
