package core

import (
	"errors"
	"iter"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// newer is a feature level beyond that of this build.
const newer = wire.FeatureLevel + 1

// supporting loads a machine as a build does that supports a level.
func supporting(level uint32) func(iter.Seq2[[]byte, []byte]) (*machine.Machine, error) {
	return func(state iter.Seq2[[]byte, []byte]) (*machine.Machine, error) { return machine.LoadAt(state, level) }
}

// build starts a core with the state on the disk, as a build does that supports a level.
func (r *rig) build(level uint32) *rig {
	r.t.Helper()
	r.open()
	state, err := raftlog.Load(r.log, supporting(level))
	if err != nil {
		r.t.Fatal(err)
	}
	r.start(func(c *Config) { c.Machine = state })
	return r
}

// The entries of fromNewer.
const (
	raises = 8 // the feature level
	writes = 9 // at that level
)

// fromNewer is the log of a newer leader behind follow: member 2 registers with entry 7,
// raises the level, and writes a key at that level.
func fromNewer(t *testing.T) *raftpb.Message {
	t.Helper()
	encode := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	entry := func(index uint64, level uint32, c *wire.Command) *raftpb.Entry {
		id := wire.ID{2}
		s := &wire.Submission{Member: 2, Incarnation: id[:], Calls: []*wire.Call{{Seq: index, Command: encode(c)}}}
		e := empty(index, 5)
		e.Data = append(appendEntryHeader(nil), encode(&wire.Batch{Version: level, Submissions: []*wire.Submission{s}})...)
		return e
	}
	token := wire.ID{7}
	register := &wire.Register{Member: 2, Boot: 1, Ttl: machine.MinTTL, NextToken: token[:], FeatureLevel: newer}
	write := &wire.Write{Ops: []*wire.KeyOp{{Kind: wire.KeyOp_PUT, Key: "key", Value: []byte("value")}}}
	return message(raftpb.MsgApp, 2, 5, commit(writes), following(6, 5,
		entry(7, wire.BatchVersion, &wire.Command{Op: &wire.Command_Register{Register: register}}),
		entry(raises, wire.BatchVersion, &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: newer}}}),
		entry(writes, newer, &wire.Command{Op: &wire.Command_Write{Write: write}})))
}

// upgraded returns a member of a newer build that has applied the whole log.
func upgraded(t *testing.T) *rig {
	t.Helper()
	r := newRig(t).build(newer).follow()
	r.mustReceive(fromNewer(t))
	r.settle()
	if agreed, _ := r.machine.Level(); agreed != newer || r.applied != writes {
		t.Fatalf("the newer build has applied %d, and is at level %d", r.applied, agreed)
	}
	return r
}

// A member that meets a raised level in its log stops, and has applied nothing of that
// entry. The entries are on its disk: a newer build continues with them, and has the state
// of a member that was newer all along.
func TestLevel_EntryBeyondBuild(t *testing.T) {
	r := newRig(t).follow()
	r.mustReceive(fromNewer(t))
	var err error
	for err == nil && r.applied < writes {
		var out Effects
		if out, err = r.Take(0); err == nil {
			r.persist(out.Batch.writes)
		}
	}
	if !errors.Is(err, ErrUpgradeRequired) {
		t.Fatalf("applied %d, %v", r.applied, err)
	}
	r.open()
	if applied := r.log.Applied().Index; applied >= raises {
		t.Errorf("entry %d is applied on the disk", applied)
	}
	if last, _ := r.log.LastIndex(); last != writes {
		t.Errorf("the log ends at %d", last)
	}
	r.build(newer)
	r.mustReceive(message(raftpb.MsgHeartbeat, 2, 5, commit(writes)))
	r.settle()
	wantSame(t, r, upgraded(t))
}

// wantSame checks that two members have applied the same, with the same result.
func wantSame(t *testing.T, got, want *rig) {
	t.Helper()
	index, digest := got.Digest()
	wantIndex, wantDigest := want.Digest()
	if index != wantIndex || digest != wantDigest {
		t.Errorf("the digest at %d is %x; the other's at %d is %x", index, digest, wantIndex, wantDigest)
	}
	if agreed, _ := got.machine.Level(); agreed != newer {
		t.Errorf("at level %d", agreed)
	}
}

// A member that receives a snapshot of a raised level stops: it cannot load that state. It
// is on its disk, and a newer build continues with it.
func TestLevel_SnapshotBeyondBuild(t *testing.T) {
	leader := upgraded(t)
	leader.Checkpoint()
	leader.settle()
	var pairs []*wire.Pair
	if err := leader.log.State(func(key, value []byte) error {
		pairs = append(pairs, &wire.Pair{Key: append([]byte(nil), key...), Value: append([]byte(nil), value...)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r := newRig(t).follow()
	s := r.stageOf(pairs)
	s.Done = func(err error) { t.Errorf("answered with %v", err) }
	_, s.Digest = leader.Digest()
	r.ReceiveSnapshot(2, snapshotMessage(writes), s)
	out, err := r.Take(0)
	if err != nil || !out.Batch.Installs() {
		t.Fatalf("%v, writes %+v", err, out.Batch.writes)
	}
	if err := r.log.Write(out.Batch.Ops()); err != nil {
		t.Fatal(err)
	}
	if _, err := raftlog.Load(r.log, supporting(wire.FeatureLevel)); !errors.Is(err, machine.ErrNewer) {
		t.Errorf("loaded with %v", err)
	}
	wantSame(t, r.build(newer), leader)
}
