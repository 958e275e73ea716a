package cluster

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// A new group begins only with the state of a member whose state is the group's.
func TestRecover_SurvivorRefused(t *testing.T) {
	cluster := identity.RandomID()
	record := func(change func(*wire.Identity)) *wire.Identity {
		r := identity.NewRecord("group")
		r.Boot, r.Cluster = 1, cluster[:]
		change(r)
		return r
	}
	for name, test := range map[string]struct {
		record   *wire.Identity
		log      bool
		diverged bool
		want     error
	}{
		"sound":         {record(func(*wire.Identity) {}), true, false, nil},
		"no member":     {nil, true, false, ErrNoGroup},
		"no group":      {record(func(r *wire.Identity) { r.Cluster = nil }), true, false, ErrNoGroup},
		"no log":        {record(func(*wire.Identity) {}), false, false, storage.ErrCorrupt},
		"removed":       {record(func(r *wire.Identity) { r.Removed = true }), true, false, ErrRemoved},
		"another key":   {record(func(r *wire.Identity) { r.Member++ }), true, false, storage.ErrCorrupt},
		"newer":         {record(func(r *wire.Identity) { r.Version++ }), true, false, storage.ErrNewer},
		"has diverged":  {record(func(*wire.Identity) {}), true, true, core.ErrCorrupt},
		"older version": {record(func(r *wire.Identity) { r.Version = 0 }), true, false, storage.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			withLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) {
				set := func(name string, m proto.Message) {
					data, err := proto.Marshal(m)
					if err = errors.Join(err, log.SetLocal(name, data)); err != nil {
						t.Fatal(err)
					}
				}
				if test.record != nil {
					set(identity.Record, test.record)
				}
				if test.diverged {
					set(replica.DivergenceRecord, &wire.Divergence{Version: wire.DivergenceVersion, Index: 7})
				}
				if test.log {
					if err := log.Bootstrap(&raftpb.ConfState{Voters: []uint64{1}}); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := survivor(log); !errors.Is(err, test.want) {
					t.Errorf("%v, want %v", err, test.want)
				}
			})
		})
	}
}

// Two seeds of one group have different members and clusters.
func TestSeed_IdentityIsNew(t *testing.T) {
	a, b := seedIdentity("group"), seedIdentity("group")
	for _, r := range []*wire.Identity{a, b} {
		if err := identity.CheckKey(r); err != nil || r.GetBoot() != 0 || len(r.GetCluster()) != 16 || r.GetGroup() != "group" {
			t.Errorf("%v, %v", r, err)
		}
	}
	if a.GetMember() == b.GetMember() || string(a.GetCluster()) == string(b.GetCluster()) {
		t.Error("the same identity twice")
	}
}
