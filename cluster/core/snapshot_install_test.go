package core

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/raftlog"
)

// stage stages a snapshot of an empty state, like Member.Snapshot.
func (r *rig) stage(answer *error) Staged {
	r.t.Helper()
	s, err := r.log.Stage()
	if err != nil {
		r.t.Fatal(err)
	}
	generation, err := s.Finish()
	if err != nil {
		r.t.Fatal(err)
	}
	return Staged{Generation: generation, Digest: 7, Done: func(err error) { *answer = err }}
}

var errUnanswered = errors.New("not answered")

// discards reports whether a stage is discarded, by the effects or by a queued write.
func (r *rig) discards(out Effects, generation uint64) bool {
	for _, w := range slices.Concat(out.Batch.writes, r.disk.queue) {
		if d, ok := w.op.(raftlog.Discard); ok && d.Generation == generation {
			return true
		}
	}
	return false
}

// A snapshot that is not installed is answered, and its stage is discarded.
func TestSnapshot_NotInstalled(t *testing.T) {
	for _, test := range []struct {
		name string
		from uint64
		m    *raftpb.Message
		want error
	}{
		{"behind what is committed", 2, snapshotMessage(3), ErrUnwanted},
		{"of an index in the log", 2, snapshotMessage(6), ErrUnwanted},
		{"of an earlier term", 2, func() *raftpb.Message {
			m := snapshotMessage(50)
			m.Term, m.Snapshot.Metadata.Term = new(uint64(4)), new(uint64(4))
			return m
		}(), ErrUnwanted},
		{"of a state later than its sender's term", 2, func() *raftpb.Message { m := snapshotMessage(50); m.Snapshot.Metadata.Term = new(uint64(6)); return m }(), ErrInadmissible},
		{"of a state of no term", 2, func() *raftpb.Message { m := snapshotMessage(50); m.Snapshot.Metadata.Term = nil; return m }(), ErrInadmissible},
		{"of an index that nothing can follow", 2, snapshotMessage(1<<64 - 1), ErrInadmissible},
		{"for a group without this member", 2, func() *raftpb.Message {
			m := snapshotMessage(50)
			m.Snapshot.Metadata.ConfState.Voters = []uint64{2, 3}
			return m
		}(), ErrUnwanted},
		{"in another's name", 3, snapshotMessage(50), ErrInadmissible},
		{"without a membership", 2, func() *raftpb.Message { m := snapshotMessage(50); m.Snapshot.Metadata.ConfState = nil; return m }(), ErrInadmissible},
		{"that is a heartbeat", 2, message(raftpb.MsgHeartbeat, 2, 5), ErrInadmissible},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t).follow()
			got := errUnanswered
			s := r.stage(&got)
			r.ReceiveSnapshot(test.from, test.m, s)
			out, err := r.Take(0)
			if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(got, test.want) || !r.discards(out, s.Generation) {
				t.Errorf("answered %v, and does %+v", got, out.Batch.writes)
			}
			if r.installation.staged != nil || r.installation.installing != nil || r.applied > 6 {
				t.Errorf("applied to %d, staged %v, installing %v", r.applied, r.installation.staged, r.installation.installing)
			}
		})
	}
}

// The term of a snapshot is on the disk with the state. Otherwise a leader of an earlier
// term could overwrite, after a crash, what was acknowledged in this one.
func TestSnapshot_TermIsDurable(t *testing.T) {
	r := newRig(t).follow()
	answer := errUnanswered
	m := snapshotMessage(50)
	m.Term = new(uint64(8))
	r.ReceiveSnapshot(2, m, r.stage(&answer))
	out, err := r.Take(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range out.Batch.writes {
		if w.op != nil {
			if err := r.log.Write([]raftlog.Op{w.op}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Stored(machine.New())
	if term, err := r.log.Term(50); err != nil || term != 5 {
		t.Errorf("the state is of term %d, %v", term, err)
	}
	hard, _, err := r.log.InitialState()
	if err != nil || hard.GetTerm() != 8 || hard.GetCommit() != 50 || answer != nil {
		t.Errorf("on the disk: %v, %v; answered %v", hard, err, answer)
	}
}

// While a snapshot is being installed another one is refused; afterwards the state is
// the first one's.
func TestSnapshot_SecondRefusedDuringInstallation(t *testing.T) {
	r := newRig(t).follow()
	first, second := errUnanswered, errUnanswered
	changed := snapshotMessage(50)
	changed.Snapshot.Metadata.ConfState.Voters = []uint64{1, 2, 4}
	r.ReceiveSnapshot(2, changed, r.stage(&first))
	out, err := r.Take(0)
	if err != nil {
		t.Fatal(err)
	}
	s := r.stage(&second)
	r.ReceiveSnapshot(2, snapshotMessage(60), s)
	later, err := r.Take(0)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(second, ErrInadmissible) || !r.discards(later, s.Generation) || first != errUnanswered {
		t.Errorf("the second is answered %v, the first %v", second, first)
	}
	for _, w := range out.Batch.writes {
		if w.op == nil {
			continue
		}
		if err := r.log.Write([]raftlog.Op{w.op}); err != nil {
			t.Fatal(err)
		}
	}
	fresh := machine.New()
	r.Stored(fresh)
	if first != nil || r.applied != 50 || r.last != 50 || r.machine != Machine(fresh) || r.digests.last != 7 {
		t.Errorf("answered %v; applied %d of %d", first, r.applied, r.last)
	}
	if got := r.Status().Installed; got != 1 {
		t.Errorf("counts %d installations", got)
	}
	if got := r.Status().Membership.GetVoters(); !slices.Equal(got, []uint64{1, 2, 4}) {
		t.Errorf("voters %d", got)
	}
	if out, err = r.Take(0); err != nil || !out.Restored || !slices.Equal(out.Membership.GetVoters(), []uint64{1, 2, 4}) {
		t.Errorf("status %+v: %v", out, err)
	}
	r.persist(out.Batch.writes)
	third := errUnanswered
	r.ReceiveSnapshot(2, snapshotMessage(60), r.stage(&third))
	if _, err := r.Take(0); err != nil || r.installation.installing == nil || third != errUnanswered {
		t.Errorf("the next one is answered %v; %v", third, err)
	}
}

// Two snapshots may arrive before the next Take.
func TestSnapshot_TwoBeforeTake(t *testing.T) {
	r := newRig(t).follow()
	first, second := errUnanswered, errUnanswered
	r.ReceiveSnapshot(2, snapshotMessage(50), r.stage(&first))
	s := r.stage(&second)
	r.ReceiveSnapshot(2, snapshotMessage(60), s)
	out, err := r.Take(0)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(second, ErrInadmissible) || !r.discards(out, s.Generation) || first != errUnanswered || r.installation.installing == nil {
		t.Errorf("the first is answered %v, the second %v", first, second)
	}
}

// raft may return a snapshot, the entries that follow it and a commit index of these at once:
// a message overtook the snapshot.
func TestSnapshot_WithEntriesBehind(t *testing.T) {
	for name, messages := range map[string][]*raftpb.Message{
		"one message": {
			message(raftpb.MsgApp, 2, 5, following(50, 5, empty(51, 5), empty(52, 5)), commit(52)),
		},
		"two messages": {
			message(raftpb.MsgApp, 2, 5, following(50, 5, empty(51, 5)), commit(50)),
			message(raftpb.MsgApp, 2, 5, following(51, 5, empty(52, 5)), commit(51)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).follow()
			answer := errUnanswered
			r.ReceiveSnapshot(2, snapshotMessage(50), r.stage(&answer))
			for _, m := range messages {
				r.mustReceive(m)
			}
			out, err := r.Take(r.at)
			if err != nil {
				t.Fatal(err)
			}
			if !out.Batch.Installs() || r.last != 52 {
				t.Fatalf("writes %+v, the log ends at %d", out.Batch.writes, r.last)
			}
			if err := r.log.Write(out.Batch.Ops()); err != nil {
				t.Fatal(err)
			}
			r.Stored(machine.New())
			r.settle()
			want := messages[len(messages)-1].GetCommit()
			if hard, _, err := r.log.InitialState(); err != nil || hard.GetCommit() != want || r.applied != want {
				t.Errorf("commit index %d, applied to %d, %v, want %d", hard.GetCommit(), r.applied, err, want)
			}
		})
	}
}
