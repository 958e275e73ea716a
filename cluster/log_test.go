package cluster

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// withLog calls use with a log on the disk.
func withLog(t *testing.T, disk *vfs.MemFS, use func(*raftlog.Log)) {
	t.Helper()
	store, err := storage.Open(storage.Options{FS: disk, Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log, err := raftlog.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	use(log)
}

// rosterOf returns the roster of member 1 in a group with the others.
func rosterOf(t *testing.T, log *raftlog.Log, others ...uint64) *roster.Roster {
	t.Helper()
	meta := &wire.GossipMeta{Version: wire.GossipVersion, Member: 1, Boot: 1}
	r, err := roster.Load(log, meta, func() []byte { return []byte("cluster") })
	if err != nil {
		t.Fatal(err)
	}
	r.SetMembership(&raftpb.ConfState{Voters: append([]uint64{1}, others...)})
	return r
}

func withRoster(t *testing.T, use func(*roster.Roster)) {
	t.Helper()
	withLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) { use(rosterOf(t, log, 7, 9)) })
}
