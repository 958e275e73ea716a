package core

import (
	"cmp"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core/latest"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// The log is the truth: what is applied need not be written as well. The changes of
// applied entries gather in memory, each key once, and go to the disk as a checkpoint when
// enough has gathered. A lock that is taken and released many times in between costs one
// write, and a ticket that comes and goes costs none. A member that starts applies what is
// in the log behind its checkpoint again.
//
// The bounds keep a checkpoint about as small as an entry, so that it delays no other
// write by more, and the work of a start below a second. While other groups write to the same
// disk, entries are smaller, and so are checkpoints: see raftlog.SharedWrite. A membership change is written
// at once: the leader notifies others of it once it is durable, and raft starts with the membership of
// the state.
const (
	checkpointBytes    = 1 << 20 // of changes
	checkpointLogBytes = 4 << 20 // of entries behind the checkpoint
	checkpointEntries  = 4096
	checkpointTicks    = 100 // after which a rest is written
)

// gathered is the changes of the entries that were applied since the last checkpoint, the
// last one of each key.
type gathered struct {
	latest.Changes
	conf     *raftpb.ConfState
	logBytes int
	entries  int
	since    uint64 // tick of the first entry
}

// add adds the changes of one entry.
func (g *gathered) add(changes []wire.Change, entry *raftpb.Entry, tick uint64) {
	if g.entries == 0 {
		g.since = tick
	}
	g.entries++
	g.logBytes += len(entry.GetData())
	for i := range changes {
		g.Put(&changes[i])
	}
}

// checkpoints is what of the applied state goes to the disk.
type checkpoints struct {
	*raftNode
	disk       *disk
	digests    *digests
	maxEntries int // of Config

	gathered   gathered
	checkpoint uint64 // the index of the last checkpoint, written or on its way
}

// tick queues a rest that has waited for long.
func (c *checkpoints) tick() {
	if c.gathered.entries > 0 && c.ticks >= c.gathered.since+checkpointTicks {
		c.Checkpoint()
	}
}

// checkpointDue reports whether so much has gathered that it must be written.
func (c *checkpoints) checkpointDue() bool {
	g := &c.gathered
	return g.conf != nil || g.Bytes() >= checkpointBytes || g.logBytes >= checkpointLogBytes ||
		g.entries >= cmp.Or(c.maxEntries, checkpointEntries) || g.Bytes() >= raftlog.SharedWrite && c.log.IsShared()
}

// Checkpoint queues the write of the state at the applied index, unless it is written
// already or on its way.
func (c *checkpoints) Checkpoint() {
	if op, ok := c.takeCheckpoint(); ok {
		c.disk.writeCommit()
		c.disk.add(write{op: op})
	}
}

func (c *checkpoints) takeCheckpoint() (op raftlog.Checkpoint, ok bool) {
	g := &c.gathered
	if g.entries == 0 || c.digests.index != c.applied { // the latter only after a panic
		return op, false
	}
	op = raftlog.Checkpoint{After: c.checkpoint, Index: c.applied, Term: c.appliedTerm, Digest: c.digests.last, ConfState: g.conf, Changes: g.Write()}
	c.gathered = gathered{}
	c.checkpoint = c.applied
	return op, true
}

// LastCheckpoint returns the write of the state at the applied index, for a member that
// stops in order: a caller that carries it out after all other writes saves the next start
// the work. ok is false if there is nothing to write.
func (c *checkpoints) LastCheckpoint() (op raftlog.Op, ok bool) {
	for _, w := range c.disk.queue { // will not be written, and the changes build on it
		switch w.op.(type) {
		case raftlog.Checkpoint, raftlog.Install:
			return nil, false
		}
	}
	return c.takeCheckpoint()
}
