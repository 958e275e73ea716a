package raftlog

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Log is the log of one group and the state that belongs to it.
type Log struct {
	store  *storage.Store
	group  group
	memory memory // belongs to the loop
	disk   disk   // belongs to the storage goroutine
}

// Storage is what raft reads. Only the loop may call it.
func (l *Log) Storage() raft.Storage { return &l.memory }

// Applied says which entry the state is the state of. Loop only.
func (l *Log) Applied() (index, term, digest uint64) {
	a := l.memory.applied
	return a.index, a.term, a.digest
}

// Bounds returns the index of the first entry that is kept and of the last.
// The log is empty when last is first-1. Loop only.
func (l *Log) Bounds() (first, last uint64) { return l.memory.first(), l.memory.last() }

// Bytes is about what the entries take in memory. Loop only.
func (l *Log) Bytes() int { return l.memory.bytes }

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
	op := &Install{
		Index: 1, Term: 1,
		ConfState: conf,
		HardState: &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1))},
	}
	err := l.store.Do(func(*pebble.DB) error {
		if !l.disk.pristine() {
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
