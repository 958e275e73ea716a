package raftlog

import (
	"github.com/conclave-go/conclave/internal/wire"
	"go.etcd.io/raft/v3/raftpb"
)

// Op is one operation on the log: Append, Apply, Truncate, Install or Discard. It is
// carried out on disk by Write, then told to the memory half by Wrote, and must
// not be altered from the moment it is handed in.
type Op interface {
	write(*writer) error
	remember(*memory)
}

// Append puts entries at the end of the log. They replace all from the index of
// the first one on. It is durable when Write returns, unless it does no more
// than move the commit index.
type Append struct {
	HardState *raftpb.HardState // nil: unchanged
	Entries   []*raftpb.Entry
}

// Apply makes durable, with the next sync, what applying the log up to Index has
// changed in the state.
type Apply struct {
	Index, Term, Digest uint64
	ConfState           *raftpb.ConfState // nil: unchanged
	Changes             []wire.Change
}

// Truncate forgets the entries up to and with Index, which must be applied.
type Truncate struct {
	Index uint64
}

// Install replaces the whole log and the state by a staged snapshot of the
// state at Index.
type Install struct {
	Index, Term, Digest uint64
	ConfState           *raftpb.ConfState
	HardState           *raftpb.HardState // nil: unchanged
	Generation          uint64            // as Stage.Finish returned it
}

// Discard removes a finished stage that is not going to be installed.
type Discard struct {
	Generation uint64
}
