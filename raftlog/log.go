package raftlog

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Log is the Raft log of one group and the state of its machine. It implements
// raft.Storage. Methods documented as loop only must be called on the loop's
// goroutine, like those of raft.Storage.
type Log struct {
	memStorage            // belongs to the loop
	written    writeState // belongs to the storage goroutine
	journal    *journal
	store      *storage.Store
	group      group
}

var _ raft.Storage = (*Log)(nil)

// Bootstrapped reports whether the log belongs to a group. Loop only.
func (l *Log) Bootstrapped() bool { return l.applied.Index > 0 }

// Applied returns the position of the written state. Loop only.
func (l *Log) Applied() Applied { return l.applied }

// Durable returns the current term and the index of the last entry. Loop only.
func (l *Log) Durable() (term, index uint64) { return l.hard.GetTerm(), l.last() }

// Bytes returns the approximate memory that the entries occupy. Loop only.
func (l *Log) Bytes() uint64 { return uint64(l.bytes) }

// Submit writes the operations on the storage goroutine, after everything
// submitted before, and then calls done there. The writes of several logs that wait share a
// batch and its sync. It does not block. As with
// storage.Store.Go, done is not called once the store has failed or is closed.
func (l *Log) Submit(ops []Op, done func(error)) {
	l.journal.submit(submission{log: l, ops: ops, done: done})
}

// IsShared reports whether other logs have written to the store lately: their next writes may have to wait for those of this one, which should then be
// of about SharedWrite bytes. It may be called on any goroutine.
func (l *Log) IsShared() bool {
	l.journal.mu.Lock()
	defer l.journal.mu.Unlock()
	return l.journal.isShared(l)
}

// Wrote makes an operation that Write has completed visible to the loop's half.
// It must be called for each operation, in the order of writing. Loop only.
func (l *Log) Wrote(op Op) { op.update(&l.memStorage) }

// BootstrapIndex is the index behind which the log of a new group begins.
const BootstrapIndex = 1

// Bootstrap makes an empty log the log of a new group, as if truncated at BootstrapIndex:
// with a membership and an empty state. It blocks until that is durable, and
// must be called before the log is used.
func (l *Log) Bootstrap(conf *raftpb.ConfState) error { return l.BootstrapWith(conf, nil, 0) }

// BootstrapWith is Bootstrap with a state and its digest.
func (l *Log) BootstrapWith(conf *raftpb.ConfState, state []wire.Change, digest uint64) error {
	generation, err := l.stageFirst(state)
	if err != nil {
		return err
	}
	op := Install{
		Index: BootstrapIndex, Term: 1, Generation: generation, Digest: digest,
		ConfState: conf,
		HardState: &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(BootstrapIndex))},
	}
	err = l.store.Do(func(*pebble.DB) error {
		if err := l.vacant(); err != nil {
			return err
		}
		return l.Write([]Op{op})
	})
	if err != nil {
		return err
	}
	l.Wrote(op)
	return nil
}

// stageFirst stages the state of a new group; 0: it is empty.
func (l *Log) stageFirst(state []wire.Change) (generation uint64, err error) {
	if len(state) == 0 {
		return 0, nil
	}
	if err := l.store.Do(func(*pebble.DB) error { return l.vacant() }); err != nil {
		return 0, err
	}
	stage, err := l.Stage()
	if err != nil {
		return 0, err
	}
	for _, c := range state {
		if err := stage.Put(c.Key, c.Value); err != nil {
			return 0, err
		}
	}
	return stage.Finish()
}

// vacant returns an error if the log belongs to a group. It runs on the storage goroutine.
func (l *Log) vacant() error {
	if !l.written.empty() {
		return fmt.Errorf("bootstrap the raft log in %s: it belongs to a group already", l.store.Dir())
	}
	return nil
}
