package core

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/raftlog"
)

// Staged is a snapshot that lies complete beside the old state and waits for
// raft to want it.
type Staged struct {
	Generation uint64
	Digest     uint64
	Done       func(error) // hears once what became of it
}

// ErrUnwanted is what becomes of a snapshot that is no news.
var ErrUnwanted = errors.New("the member has got further by itself")

// Snapshot is the message by which a state goes to a peer: raft's, but of the state
// as it is on the disk now, which may be newer than when raft asked.
func Snapshot(m *raftpb.Message, state *raftlog.View) *raftpb.Message {
	m = proto.CloneOf(m)
	m.Snapshot.Metadata = &raftpb.SnapshotMetadata{Index: &state.Index, Term: &state.Term, ConfState: state.ConfState}
	return m
}

// ReceiveSnapshot steps a snapshot whose state has been staged.
func (c *Core) ReceiveSnapshot(from uint64, m *raftpb.Message, s Staged) {
	if err := c.admissibleSnapshot(from, m); err != nil {
		c.discard(&s, err)
		return
	}
	c.staged = &s
	c.step(m)
}

func (c *Core) admissibleSnapshot(from uint64, m *raftpb.Message) error {
	if err := c.admissible(from, m); err != nil {
		return err
	}
	meta := m.GetSnapshot().GetMetadata()
	if m.GetType() != raftpb.MsgSnap || meta.GetConfState() == nil {
		return refuse("not a snapshot")
	}
	// A leader that has just lost its office sends a state of a later term in
	// the name of its own. A log must not end in a later term than the
	// member's, and whoever leads now sends another one.
	if index, term := meta.GetIndex(), meta.GetTerm(); index > maxIndex || term == 0 || term > m.GetTerm() {
		return refuse("snapshot of index %d and term %d in term %d", index, term, m.GetTerm())
	}
	if c.staged != nil || c.installing != nil {
		return refuse("a snapshot is being installed")
	}
	return nil
}

// install queues the switch to the staged state.
func (c *Core) install(s *raftpb.Snapshot, hard *raftpb.HardState) {
	meta := s.GetMetadata()
	c.disk.add(write{op: raftlog.Install{
		Index:      meta.GetIndex(),
		Term:       meta.GetTerm(),
		ConfState:  meta.GetConfState(),
		HardState:  hard,
		Digest:     c.staged.Digest,
		Generation: c.staged.Generation,
	}})
	c.last = meta.GetIndex()
	c.staged, c.installing = nil, c.staged
}

// installed says that a snapshot has become the state.
func (c *Core) installed(machine Machine, op raftlog.Install) {
	c.machine, c.applied = machine, op.Index
	c.membership(op.ConfState)
	c.installing.Done(nil)
	c.installing = nil
	c.installs++
	c.digests.restore(op.Index, op.Digest)
	c.out.restored = true
	c.recheck()
}

// discardStaged lets a stage go that raft did not want: it had got further by
// itself meanwhile.
func (c *Core) discardStaged() {
	if c.staged != nil {
		c.discard(c.staged, ErrUnwanted)
		c.staged = nil
	}
}

func (c *Core) discard(s *Staged, why error) {
	c.disk.add(write{op: raftlog.Discard{Generation: s.Generation}})
	s.Done(why)
}
