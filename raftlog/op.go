package raftlog

import (
	"github.com/conclave-go/conclave/internal/wire"
	"go.etcd.io/raft/v3/raftpb"
)

// Op is one operation on the log: Append, Checkpoint, Truncate, Install, Discard or Seed.
// Write carries it out on disk, then Wrote on the loop's half. It must not be
// modified once it is submitted.
type Op interface {
	write(*writer) error
	update(*memStorage)
}

// Append appends entries, replacing those from the first index on, and sets the
// hard state. It is durable when Write returns, unless it only advances the
// commit index.
type Append struct {
	HardState *raftpb.HardState // nil: unchanged
	Entries   []*raftpb.Entry
}

// Checkpoint makes the written state that at Index: Changes has what has changed since
// the state at After, which must be the written one. It is durable with the next synced
// operation.
type Checkpoint struct {
	After               uint64
	Index, Term, Digest uint64
	ConfState           *raftpb.ConfState // nil: unchanged
	Changes             []wire.Change
}

// Truncate removes the entries up to and including Index, which must be applied.
type Truncate struct {
	Index uint64
}

// Install replaces the whole log and the state by a staged snapshot, which is
// the state at Index. It is durable when Write returns.
type Install struct {
	Index, Term, Digest uint64
	ConfState           *raftpb.ConfState
	HardState           *raftpb.HardState // nil: unchanged
	Generation          uint64            // returned by Stage.Finish
}

// Discard removes a finished stage that will not be installed.
type Discard struct {
	Generation uint64
}

// Applied identifies the entry at which a state was taken, with the digest of
// that state.
type Applied struct {
	Index, Term, Digest uint64
}
