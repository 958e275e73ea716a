package core

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/raftlog"
)

// sized is a machine of that size.
type sized struct {
	Machine
	size uint64
}

func (s sized) Size() uint64 { return s.size }

// behind makes the core a leader of member 2, whose log ends at last, and of member 3,
// which needs a snapshot. It returns the snapshot's index.
func (r *rig) behind() uint64 {
	r.t.Helper()
	r.grow(10, 0)
	r.lead()
	m := message(raftpb.MsgAppResp, 3, r.term, following(r.last-1, 0))
	m.Reject, m.RejectHint = new(true), new(uint64(1))
	r.mustReceive(m)
	out := r.effects()
	r.mustReceive(message(raftpb.MsgHeartbeatResp, 3, r.term))
	snapshots := slices.Concat(out.Snapshots, r.effects().Snapshots)
	if len(snapshots) != 1 {
		r.t.Fatalf("%d snapshots are sent", len(snapshots))
	}
	return snapshots[0].GetSnapshot().GetMetadata().GetIndex()
}

// write commits one command of a size with member 2, and returns the peers whose
// snapshots were cancelled and the index of a truncation.
func (r *rig) write(seq uint64, size int) (cancelled []uint64, truncated uint64) {
	r.t.Helper()
	s := command(seq)
	s.Calls[0].Command = make([]byte, size)
	r.mustSubmit(s)
	for round := range 2 {
		if round == 1 {
			r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(r.last, 0)))
		}
		for {
			out, err := r.Take(r.at)
			if err != nil {
				r.t.Fatal(err)
			}
			cancelled = append(cancelled, out.Cancelled...)
			if len(out.Batch.writes) == 0 {
				break
			}
			for _, w := range out.Batch.writes {
				if op, ok := w.op.(raftlog.Truncate); ok {
					truncated = op.Index
				}
			}
			r.persist(out.Batch.writes)
		}
	}
	return cancelled, truncated
}

// The log keeps what a member with a snapshot in flight needs next, as long as there is
// progress and it has not more bytes than the snapshot has sent; then the snapshot is
// cancelled, and the next one has twice the allowance.
func TestCatchUp_Bounds(t *testing.T) {
	const keepBytes, size = 1 << 20, 1000 << 10
	small := func(c *Config) { c.Keep, c.KeepBytes = 2, keepBytes }
	seq := uint64(0)
	until := func(r *rig, index uint64, limit int) (bytes uint64, cancelled []uint64) {
		t.Helper()
		for range limit {
			seq++
			more, truncated := r.write(seq, size)
			if cancelled = append(cancelled, more...); truncated > index {
				return bytes, cancelled
			}
			bytes = r.log.Bytes()
		}
		return bytes, cancelled
	}
	wantFor := func(what string, bytes, want uint64, cancelled []uint64) {
		t.Helper()
		if bytes < want || bytes > want+2*keepBytes+2*size || !slices.Equal(cancelled, []uint64{3}) {
			t.Errorf("%s: the log had %d MiB, want %d; snapshots cancelled to %d", what, bytes>>20, want>>20, cancelled)
		}
	}
	r := newRig(t, small).follow()
	bytes, cancelled := until(r, r.behind(), 100)
	wantFor("at first", bytes, firstAllowance, cancelled)
	r.SnapshotSent(3, false)
	r.effects()
	r.peers.byID[3].snapshotBegan(r.applied, r.ticks) // raft asks again
	bytes, cancelled = until(r, r.applied, 200)
	wantFor("after a failure", bytes, 2*firstAllowance, cancelled)

	r = newRig(t, small).follow()
	index := r.behind()
	r.SnapshotProgress(3, 100<<20)
	bytes, cancelled = until(r, index, 200)
	wantFor("with progress", bytes, 100<<20, cancelled)

	r = newRig(t, small).follow()
	index = r.behind()
	for range patienceElections*electionTicks + 2 {
		r.pass(1, 2)
	}
	if bytes, cancelled = until(r, index, 100); bytes > 4*keepBytes || r.peers.byID[3].catchUp != nil || len(cancelled) > 0 {
		t.Errorf("without progress: the log had %d MiB", bytes>>20)
	}
}

// The log does not wait for a member whose snapshot waits until others have been sent, and does from when it begins. One of a state
// behind which the log is truncated meanwhile is cancelled.
func TestCatchUp_SnapshotWaits(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Keep = 2 }).follow()
	index, seq := r.behind(), uint64(0)
	write := func() (cancelled []uint64, truncated uint64) {
		for range 10 {
			seq++
			more, at := r.write(seq, 10)
			cancelled, truncated = append(cancelled, more...), max(truncated, at)
		}
		return cancelled, truncated
	}
	r.SnapshotWaits(3)
	if cancelled, truncated := write(); truncated <= index || len(cancelled) > 0 {
		t.Fatalf("the log is truncated to %d of %d, snapshots cancelled to %d", truncated, r.applied, cancelled)
	}
	began := r.applied
	r.SnapshotBegins(3, began)
	if cancelled, truncated := write(); truncated > began || len(cancelled) > 0 {
		t.Errorf("the log is truncated to %d, snapshots cancelled to %d; the snapshot has %d", truncated, cancelled, began)
	}
	r.SnapshotBegins(3, index)
	if cancelled, _ := r.write(seq+1, 10); !slices.Equal(cancelled, []uint64{3}) {
		t.Errorf("snapshots cancelled to %d", cancelled)
	}
	r.SnapshotBegins(4, r.applied)
	if cancelled, _ := r.write(seq+2, 10); !slices.Equal(cancelled, []uint64{4}) {
		t.Errorf("the snapshot for a member that is in the configuration no more: cancelled to %d", cancelled)
	}
}

// Once the snapshot is installed, the log keeps what the member has not acknowledged.
func TestCatchUp_EntriesAfterSnapshot(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Keep = 2 }).follow()
	index := r.behind()
	acknowledge := func(at uint64) { r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, following(at, 0))) }
	var last uint64
	for seq := range uint64(30) {
		switch seq {
		case 10:
			r.SnapshotSent(3, true)
			acknowledge(index)
		case 20:
			acknowledge(index + 5)
		}
		if _, truncated := r.write(seq+1, 10); truncated > 0 {
			last = truncated
		}
		if limit := index + 5; seq < 20 && last > index || last > limit {
			t.Fatalf("after %d entries the log is truncated to %d; the member has %d", seq, last, index)
		}
	}
	acknowledge(r.last)
	if _, truncated := r.write(31, 10); truncated < r.applied-3 || r.peers.byID[3].catchUp != nil {
		t.Errorf("the log is truncated to %d of %d after the member has caught up", truncated, r.applied)
	}
}

// The log of a large state is longer, in entries and bytes.
func TestTruncate_GrowsWithState(t *testing.T) {
	for _, test := range []struct{ size, entries, bytes uint64 }{
		{0, 10, 1000}, {8 * 1999, 10, 1000}, {8 * 5000, 50, 5000},
	} {
		r := newRig(t, func(c *Config) { c.Keep, c.KeepBytes = 10, 1000 })
		r.machine = sized{r.machine, test.size}
		if entries, bytes := r.retention(r.machine.Size()); entries != test.entries || bytes != test.bytes {
			t.Errorf("with a state of %d bytes: keeps %d entries and %d bytes, want %d and %d", test.size, entries, bytes, test.entries, test.bytes)
		}
	}
}

// The log does not wait for a member that was removed while it caught up, and a snapshot for it
// that waits for an agreement is refused.
func TestCatchUp_EndsWithRemoval(t *testing.T) {
	without3 := &raftpb.ConfState{Voters: []uint64{1, 2}}
	r := newRig(t, func(c *Config) { c.Keep = 2 }).follow()
	index := r.behind()
	var refused []error
	r.ConfirmSnapshot(3, r.applied, func(err error) { refused = append(refused, err) })
	r.membershipChanged(without3)
	r.effects()
	if len(refused) != 1 || refused[0] == nil {
		t.Errorf("the snapshot is answered %v", refused)
	}
	truncated := uint64(0)
	for seq := range uint64(10) {
		_, at := r.write(seq+1, 10)
		truncated = max(truncated, at)
	}
	if truncated <= index {
		t.Errorf("the log is truncated to %d of %d; the removed member needed all behind %d", truncated, r.applied, index)
	}
	r.ConfirmSnapshot(3, r.applied, func(err error) { refused = append(refused, err) })
	if r.effects(); len(refused) != 2 || refused[1] == nil {
		t.Errorf("a snapshot for the removed member is answered %v", refused)
	}
}

// A snapshot that is sent without an agreement is cancelled when its receiver is removed.
func TestCatchUp_StreamEndsWithRemoval(t *testing.T) {
	r := newConfirming(t)
	r.pass(confirmationElections*electionTicks, 2)
	r.want("after the timeout", true, false)
	r.membershipChanged(&raftpb.ConfState{Voters: []uint64{1, 2}})
	if out, err := r.Take(r.at); err != nil || !slices.Equal(out.Cancelled, []uint64{3}) {
		t.Errorf("%v; cancels the snapshots to %d", err, out.Cancelled)
	}
}
