package core

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// state returns the state on the disk without the machine's own record.
func (r *rig) state() (pairs []string) {
	r.t.Helper()
	if err := r.log.State(func(key, value []byte) error {
		if string(key) != "m" {
			pairs = append(pairs, fmt.Sprintf("%s=%s", key, value))
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return pairs
}

func (r *rig) wantState(want ...string) {
	r.t.Helper()
	if got := r.state(); !slices.Equal(got, want) {
		r.t.Errorf("on the disk: %q, want %q", got, want)
	}
}

func created(key, value string) wire.Change {
	c := change(key, value)
	c.Created = true
	return c
}

func deleted(key string) wire.Change { return wire.Change{Key: []byte(key)} }

// A checkpoint has the last value of each key, and nothing of a key that came and went.
func TestCheckpoint_Coalesces(t *testing.T) {
	r := newRig(t).follow()
	r.Checkpoint()
	r.applyResult(fact.Result{Changes: []wire.Change{change("a", "1"), created("b", "1"), created("gone", "1")}})
	r.applyResult(fact.Result{Changes: []wire.Change{change("a", "2"), created("c", "1"), deleted("gone")}})
	r.applyResult(fact.Result{Changes: []wire.Change{deleted("b"), created("gone", "2")}})
	r.wantState()
	r.Checkpoint()
	out, err := r.Take(r.at)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, op := range out.Batch.Ops() {
		for _, c := range op.(raftlog.Checkpoint).Changes {
			keys = append(keys, string(c.Key))
		}
	}
	slices.Sort(keys)
	if want := []string{"a", "c", "gone"}; !slices.Equal(keys, want) {
		t.Errorf("writes %q, want %q", keys, want)
	}
	r.persist(out.Batch.writes)
	r.wantState("a=2", "c=1", "gone=2")
	r.applyResult(fact.Result{Changes: []wire.Change{change("a", "3")}})
	r.applyResult(fact.Result{Changes: []wire.Change{deleted("a"), deleted("gone"), deleted("c"), created("c", "2")}})
	r.Checkpoint()
	r.settle()
	r.wantState("c=2")
}

// What has gathered is bounded: in entries, in bytes of changes, in bytes of the log and in
// time.
func TestCheckpoint_Bounds(t *testing.T) {
	small := func(c *Config) { c.CheckpointEntries = 3 }
	for name, test := range map[string]struct {
		results []fact.Result
		ticks   int
	}{
		"entries": {[]fact.Result{{Changes: []wire.Change{change("a", "1")}}, {}, {}}, 0},
		"bytes":   {[]fact.Result{{Changes: []wire.Change{change("a", string(make([]byte, checkpointBytes)))}}}, 0},
		"time":    {[]fact.Result{{Changes: []wire.Change{change("a", "1")}}}, checkpointTicks},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, small).follow()
			r.applyResult(fact.Result{}) // and those before
			r.Checkpoint()
			r.settle()
			for i, result := range test.results {
				if len(r.state()) > 0 {
					t.Fatalf("written before result %d", i)
				}
				r.applyResult(result)
			}
			for range test.ticks {
				if len(r.state()) > 0 {
					t.Fatal("written too early")
				}
				r.Tick()
				r.mustReceive(message(raftpb.MsgHeartbeat, 2, r.term))
				r.settle()
			}
			if len(r.state()) != 1 {
				t.Errorf("on the disk: %q", r.state())
			}
			if r.gathered.entries != 0 {
				t.Errorf("%d entries are still gathered", r.gathered.entries)
			}
		})
	}
}

// A checkpoint is written behind the entry with which enough has gathered, though others are applied together with it.
func TestCheckpoint_BehindItsEntry(t *testing.T) {
	r := newRig(t).follow()
	large := func(key string) fact.Result {
		return fact.Result{Changes: []wire.Change{change(key, string(make([]byte, checkpointBytes)))}}
	}
	r.machine = scripted{r.machine, map[uint64]fact.Result{5: large("a"), 6: large("b")}}
	r.mustReceive(message(raftpb.MsgHeartbeat, 2, r.term, commit(6)))
	out, err := r.Take(r.at)
	if err != nil {
		t.Fatal(err)
	}
	var at []uint64
	for _, op := range out.Batch.Ops() {
		if c, ok := op.(raftlog.Checkpoint); ok {
			at = append(at, c.Index)
		}
	}
	if !slices.Equal(at, []uint64{5, 6}) {
		t.Errorf("checkpoints at %d, want 5 and 6", at)
	}
	r.persist(out.Batch.writes)
}

// While another group writes to the same disk, checkpoints are smaller.
func TestCheckpoint_SmallerOnSharedDisk(t *testing.T) {
	for _, shared := range []bool{false, true} {
		r := newRig(t).follow()
		if shared {
			r.share()
		}
		r.applyResult(fact.Result{Changes: []wire.Change{change("a", string(make([]byte, raftlog.SharedWrite*3/4)))}})
		if len(r.state()) > 0 {
			t.Errorf("shared %t: %d changes are written early", shared, len(r.state()))
		}
		r.applyResult(fact.Result{Changes: []wire.Change{change("b", string(make([]byte, raftlog.SharedWrite/2)))}})
		if written := len(r.state()) == 2; written != shared {
			t.Errorf("shared %t: written %t", shared, written)
		}
	}
}

// A key that each entry overwrites does not cost a checkpoint for each.
func TestCheckpoint_HotKeyOnSharedDisk(t *testing.T) {
	r := newRig(t).follow()
	r.share()
	for range 20 {
		r.applyResult(fact.Result{Changes: []wire.Change{change("hot", string(make([]byte, raftlog.SharedWrite*9/10)))}})
	}
	if written := r.state(); len(written) > 0 {
		t.Errorf("%d changes are written early", len(written))
	}
}

// A member that starts applies the entries behind its checkpoint again, and comes to the
// same state.
func TestCheckpoint_RestartAppliesAgain(t *testing.T) {
	r := newRig(t).follow()
	r.applyResult(fact.Result{Changes: []wire.Change{change("a", "1")}})
	r.Checkpoint()
	r.settle()
	written, results := r.applied, make(map[uint64]fact.Result)
	for _, c := range []wire.Change{change("a", "2"), change("b", "1")} {
		result := fact.Result{Changes: []wire.Change{c}}
		r.applyResult(result)
		results[r.applied] = result
	}
	index, digest := r.Digest()
	r.open()
	r.start(func(c *Config) { c.Machine = scripted{c.Machine, results} })
	if got := r.Status().Applied; got != written {
		t.Errorf("starts at %d, want %d", got, written)
	}
	r.settle()
	if i, d := r.Digest(); i != index || d != digest {
		t.Errorf("the digest is %x at %d, was %x at %d", d, i, digest, index)
	}
	r.Checkpoint()
	r.settle()
	r.wantState("a=2", "b=1")
}

// The log is not truncated behind the checkpoint.
func TestCheckpoint_BeforeTruncation(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Keep = 4 }).follow()
	for i := range 20 {
		r.applyResult(fact.Result{Changes: []wire.Change{change("a", fmt.Sprint(i))}})
		if first, _ := r.log.FirstIndex(); first > r.log.Applied().Index+1 {
			t.Fatalf("truncated to %d, written is %d", first, r.log.Applied().Index)
		}
	}
	if first, _ := r.log.FirstIndex(); first < 5 {
		t.Errorf("not truncated: the log begins at %d", first)
	}
}

// The last checkpoint of a member that stops is none if the changes before it are not
// written.
func TestLastCheckpoint(t *testing.T) {
	r := newRig(t).follow()
	r.applyResult(fact.Result{Changes: []wire.Change{change("a", "1")}})
	op, ok := r.LastCheckpoint()
	if !ok {
		t.Fatal("nothing to write")
	}
	if err := r.log.Execute(op); err != nil {
		t.Fatal(err)
	}
	r.wantState("a=1")
	if op, ok := r.LastCheckpoint(); ok {
		t.Errorf("writes %+v twice", op)
	}
	r = newRig(t).follow()
	r.applyResult(fact.Result{Changes: []wire.Change{change("a", "1")}})
	r.Checkpoint() // queued, and never written
	r.gathered.add([]wire.Change{change("b", "1")}, empty(r.applied+1, r.term), r.ticks)
	if op, ok := r.LastCheckpoint(); ok {
		t.Errorf("writes %+v without the changes before", op)
	}
}

// An installed snapshot replaces what has gathered: nothing of the former state is written
// over it.
func TestCheckpoint_SnapshotReplaces(t *testing.T) {
	r := newRig(t).follow()
	r.applyResult(fact.Result{Changes: []wire.Change{change("former", "1")}})
	answer := errUnanswered
	r.ReceiveSnapshot(2, snapshotMessage(50), r.stage(&answer))
	out, err := r.Take(r.at)
	if err != nil {
		t.Fatal(err)
	}
	r.Checkpoint()
	if err := r.log.Write(out.Batch.Ops()); err != nil {
		t.Fatal(err)
	}
	r.Stored(machine.New())
	r.settle()
	r.last = 50
	r.applyResult(fact.Result{Changes: []wire.Change{change("a", "1")}})
	r.Checkpoint()
	r.settle()
	r.wantState("a=1")
	if at := r.log.Applied().Index; at != 51 {
		t.Errorf("the state on the disk is of index %d", at)
	}
}

// After a panic while an entry was being applied, nothing is written: its digest may be
// counted already.
func TestLastCheckpoint_EntryHalfApplied(t *testing.T) {
	r := newRig(t).follow()
	r.applyResult(fact.Result{Changes: []wire.Change{change("a", "1")}})
	r.digests.add(r.applied+1, nil)
	if op, ok := r.LastCheckpoint(); ok {
		t.Errorf("writes %+v with the digest of another index", op)
	}
}
