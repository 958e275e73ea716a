package core

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/raftlog"
)

// Staged is a complete snapshot, stored beside the state, that raft has not accepted yet.
type Staged struct {
	Generation uint64
	Digest     uint64
	Done       func(error) // called once: nil after the installation
}

// ErrUnwanted: raft does not accept the snapshot, as the log has caught up without it.
var ErrUnwanted = errors.New("the member is up to date without the snapshot")

// Snapshot returns a copy of raft's message m with the metadata of the state on the
// disk, which may be newer than the one that m names.
func Snapshot(m *raftpb.Message, state *raftlog.View) *raftpb.Message {
	m = proto.CloneOf(m)
	m.Snapshot.Metadata = &raftpb.SnapshotMetadata{Index: &state.Index, Term: &state.Term, ConfState: state.ConfState}
	return m
}

// installation is the snapshot that this member installs.
type installation struct {
	*raftNode
	disk       *disk
	staged     *Staged // nil: none
	installing *Staged // raft has accepted it; nil: none
	installs   uint64  // since the start
}

// ReceiveSnapshot passes the message of a staged snapshot to raft.
func (c *Core) ReceiveSnapshot(from uint64, m *raftpb.Message, s Staged) {
	if err := c.installation.admissibleSnapshot(from, m); err != nil {
		c.installation.discard(&s, err)
		return
	}
	c.installation.staged = &s
	c.step(m)
}

func (i *installation) admissibleSnapshot(from uint64, m *raftpb.Message) error {
	if err := i.admissible(from, m); err != nil {
		return err
	}
	meta := m.GetSnapshot().GetMetadata()
	if m.GetType() != raftpb.MsgSnap || meta.GetConfState() == nil {
		return refuse("not a snapshot")
	}
	// A leader that has just been deposed may send a state of a later term than its
	// message's. A log must not end in a later term than the member's; the next leader
	// sends another snapshot.
	if index, term := meta.GetIndex(), meta.GetTerm(); index > maxIndex || term == 0 || term > m.GetTerm() {
		return refuse("snapshot of index %d and term %d in term %d", index, term, m.GetTerm())
	}
	if i.staged != nil || i.installing != nil {
		return refuse("another snapshot is being installed")
	}
	return nil
}

// install queues the installation of the staged snapshot.
func (c *Core) install(s *raftpb.Snapshot, hard *raftpb.HardState) {
	meta := s.GetMetadata()
	c.installation.begin(meta, hard)
	c.last = meta.GetIndex()
	c.checkpoints.gathered = gathered{} // of a state that is replaced
	c.notices.changes.replaced(meta.GetIndex())
}

// begin queues the write of the staged snapshot, which raft has accepted.
func (i *installation) begin(meta *raftpb.SnapshotMetadata, hard *raftpb.HardState) {
	i.disk.add(write{op: raftlog.Install{
		Index:      meta.GetIndex(),
		Term:       meta.GetTerm(),
		ConfState:  meta.GetConfState(),
		HardState:  hard,
		Digest:     i.staged.Digest,
		Generation: i.staged.Generation,
	}})
	i.staged, i.installing = nil, i.staged
}

// done notes that the snapshot is durable.
func (i *installation) done() {
	i.installing.Done(nil)
	i.installing = nil
	i.installs++
}

// installed replaces the machine by that of a snapshot that is durable.
func (c *Core) installed(machine Machine, op raftlog.Install) {
	c.machine, c.applied, c.appliedTerm, c.checkpoint = machine, op.Index, op.Term, op.Index
	c.membershipChanged(op.ConfState)
	c.installation.done()
	c.digests.restore(op.Index, op.Digest)
	c.arbitration.settled() // a dispute was about the former state
	c.arbitration.compare(op.Index)
	c.out.Restored = true
	c.calls.recheck(c.machine)
	c.retryCalls()
}

// discardStaged discards a staged snapshot that raft has not accepted.
func (i *installation) discardStaged() {
	if i.staged != nil {
		i.discard(i.staged, ErrUnwanted)
		i.staged = nil
	}
}

func (i *installation) discard(s *Staged, why error) {
	i.disk.add(write{op: raftlog.Discard{Generation: s.Generation}})
	s.Done(why)
}
