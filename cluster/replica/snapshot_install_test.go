package replica

import (
	"iter"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// While the machine of an installed snapshot is loaded, the storage goroutine writes for other groups.
func TestSnapshot_LoadDelaysNoOtherGroup(t *testing.T) {
	cfg := alone()
	loading, loaded := make(chan struct{}), make(chan struct{})
	var loads atomic.Int32
	cfg.LoadMachine = func(state iter.Seq2[[]byte, []byte]) (Machine, error) {
		if loads.Add(1) == 2 { // the first one is that of the start
			close(loading)
			<-loaded
		}
		return machine.Load(state)
	}
	restored := make(chan struct{}, 2)
	cfg.Restored = func(Machine) { restored <- struct{}{} }
	g := startWith(t, cfg, self, 2)
	<-restored
	stage, err := g.cfg.Log.Stage()
	if err != nil {
		t.Fatal(err)
	}
	state := machine.FirstState(wire.FeatureLevel)
	for _, c := range state {
		if err := stage.Put(c.Key, c.Value); err != nil {
			t.Fatal(err)
		}
	}
	generation, err := stage.Finish()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	message := &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: new(uint64(2)), To: new(uint64(self)), Term: new(uint64(9)),
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(uint64(50)), Term: new(uint64(5)), ConfState: &raftpb.ConfState{Voters: []uint64{self, 2}},
		}},
	}
	g.Post(func(c *core.Core) {
		c.ReceiveSnapshot(2, message, core.Staged{Generation: generation, Digest: core.FirstDigest(state), Done: func(err error) { done <- err }})
	})
	<-loading
	other, err := g.cfg.Log.OpenGroup(1)
	if err == nil {
		err = other.SetLocal("record", []byte{1}) // blocks until it is on the disk
	}
	if err != nil {
		t.Error(err)
	}
	close(loaded)
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-restored
	if s := g.Status(); s.Applied < 50 || s.Installed != 1 {
		t.Errorf("applied %d, %d snapshots installed", s.Applied, s.Installed)
	}
}
