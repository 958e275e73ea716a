package core

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// raft panics at an invalid configuration. With one on its disk a member does not start,
// and its host goes on.
func TestNew_InvalidConfiguration(t *testing.T) {
	for name, conf := range map[string]*raftpb.ConfState{
		"a voter with ID 0":             {Voters: []uint64{1, 0}},
		"a voter that is a learner":     {Voters: []uint64{1, 2}, Learners: []uint64{2}},
		"a voter twice":                 {Voters: []uint64{1, 2, 2}},
		"a former voter twice":          {Voters: []uint64{1}, VotersOutgoing: []uint64{2, 2}},
		"LearnersNext without a change": {Voters: []uint64{1}, LearnersNext: []uint64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := storage.Open(storage.Options{Inline: true, MemTableSize: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			log, err := raftlog.Open(store)
			if err != nil {
				t.Fatal(err)
			}
			if err := log.Bootstrap(conf); err != nil {
				t.Fatal(err)
			}
			_, err = New(Config{
				ID: 1, Incarnation: wire.ID{1}, Log: log, Machine: machine.New(),
				Tick: tick, ElectionTicks: electionTicks, Logger: quiet,
			})
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%v", err)
			}
		})
	}
}
