package raftlog

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Log is the log of one group and the state that belongs to it. It is a
// raft.Storage, for the loop.
type Log struct {
	memory      // belongs to the loop
	disk   disk // belongs to the storage goroutine
	store  *storage.Store
	group  group
}

var _ raft.Storage = (*Log)(nil)

// Bootstrapped reports whether the log belongs to a group. Loop only.
func (l *Log) Bootstrapped() bool { return l.applied.Index > 0 }

// Applied says which entry the state is the state of. Loop only.
func (l *Log) Applied() Applied { return l.applied }

// Bytes is about what the entries take in memory. Loop only.
func (l *Log) Bytes() uint64 { return uint64(l.bytes) }

// Submit hands the operations to the storage goroutine, which writes them after
// all that was handed in before, and calls done, there too. See storage.Go.
func (l *Log) Submit(ops []Op, done func(error)) {
	l.store.Go(func(*pebble.DB) error { return l.Write(ops) }, done)
}

// Wrote tells the memory half of an operation that Write has carried out.
// Operations are told in the order in which they were written. Loop only.
func (l *Log) Wrote(op Op) { op.remember(&l.memory) }

// Bootstrap makes an empty log the log of a new group, as if it had been
// truncated at index 1: a membership, and no state yet. It blocks, and has to
// be called before the log is used.
func (l *Log) Bootstrap(conf *raftpb.ConfState) error {
	op := Install{
		Index: 1, Term: 1,
		ConfState: conf,
		HardState: &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1))},
	}
	err := l.store.Do(func(*pebble.DB) error {
		if !l.disk.empty() {
			return fmt.Errorf("bootstrap: %s holds the log of a group already", l.store.Dir())
		}
		return l.Write([]Op{op})
	})
	if err != nil {
		return err
	}
	l.Wrote(op)
	return nil
}
