package cluster

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/raftlog"
)

// staged is a snapshot that lies complete beside the old state and waits for
// raft to want it.
type staged struct {
	generation uint64
	digest     uint64
	done       func(error) // what became of it
}

var errUnwanted = errors.New("the member has got further by itself")

// receivedSnapshot steps a snapshot whose state has been staged.
func (c *core) receivedSnapshot(from uint64, m *raftpb.Message, s staged) {
	if err := c.admissibleSnapshot(from, m); err != nil {
		c.discard(&s, err)
		return
	}
	c.staged = &s
	c.step(m)
}

func (c *core) admissibleSnapshot(from uint64, m *raftpb.Message) error {
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
func (c *core) install(s *raftpb.Snapshot, hard *raftpb.HardState) {
	meta := s.GetMetadata()
	c.out.writes = append(c.out.writes, write{op: raftlog.Install{
		Index:      meta.GetIndex(),
		Term:       meta.GetTerm(),
		ConfState:  meta.GetConfState(),
		HardState:  hard,
		Digest:     c.staged.digest,
		Generation: c.staged.generation,
	}})
	c.last = meta.GetIndex()
	c.staged, c.installing = nil, c.staged
}

// installed says that a snapshot has become the state.
func (c *core) installed(machine Machine, op raftlog.Install) {
	c.machine, c.applied = machine, op.Index
	c.membership(op.ConfState)
	c.installing.done(nil)
	c.installing = nil
	c.installs++
	c.digests.restore(op.Index, op.Digest)
	c.out.restored = true
	c.recheck()
}

// discardStaged lets a stage go that raft did not want: it had got further by
// itself meanwhile.
func (c *core) discardStaged() {
	if c.staged != nil {
		c.discard(c.staged, errUnwanted)
		c.staged = nil
	}
}

func (c *core) discard(s *staged, why error) {
	c.out.writes = append(c.out.writes, write{op: raftlog.Discard{Generation: s.generation}})
	s.done(why)
}
