package core

import (
	"cmp"
	"unsafe"

	"go.etcd.io/raft/v3/raftpb"

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
// write by more, and the work of a start below a second. A membership change is written
// at once: the leader tells of it when it is durable, and raft starts with the membership of
// the state.
const (
	checkpointBytes    = 1 << 20 // of changes
	checkpointLogBytes = 4 << 20 // of entries behind the checkpoint
	checkpointEntries  = 4096
	checkpointTicks    = 100 // after which a rest is written
)

// gathered is the changes of the entries that were applied since the last checkpoint.
type gathered struct {
	changes  []gatheredChange
	free     []int          // positions in changes
	at       map[string]int // a key's position in changes
	conf     *raftpb.ConfState
	bytes    int // of changes
	logBytes int
	entries  int
	since    uint64 // tick of the first entry
}

type gatheredChange struct {
	wire.Change
	none bool // the key was created and deleted since the last checkpoint
}

// add adds the changes of one entry.
func (g *gathered) add(changes []wire.Change, entry *raftpb.Entry, tick uint64) {
	if g.entries == 0 {
		g.since = tick
	}
	g.entries++
	g.logBytes += len(entry.GetData())
	if g.at == nil {
		g.at = make(map[string]int)
	}
	for _, c := range changes {
		g.put(c)
	}
}

func (g *gathered) put(c wire.Change) {
	key := unsafe.String(unsafe.SliceData(c.Key), len(c.Key)) // never changed
	if c.Created && c.Value == nil {
		return
	}
	i, ok := 0, false
	if !c.Created {
		i, ok = g.at[key]
	}
	if !ok {
		g.insert(key, gatheredChange{Change: c})
		return
	}
	last := &g.changes[i]
	if last.Created && c.Value == nil {
		g.bytes -= len(last.Key) + len(last.Value)
		*last = gatheredChange{none: true}
		g.free = append(g.free, i)
		delete(g.at, key)
		return
	}
	g.bytes += len(c.Value) - len(last.Value)
	last.Value = c.Value
}

func (g *gathered) insert(key string, c gatheredChange) {
	g.bytes += len(c.Key) + len(c.Value)
	if n := len(g.free); n > 0 {
		g.at[key], g.changes[g.free[n-1]] = g.free[n-1], c
		g.free = g.free[:n-1]
		return
	}
	g.at[key] = len(g.changes)
	g.changes = append(g.changes, c)
}

// checkpointDue reports whether so much has gathered that it must be written.
func (c *Core) checkpointDue() bool {
	g := &c.gathered
	return g.conf != nil || g.bytes >= checkpointBytes || g.logBytes >= checkpointLogBytes ||
		g.entries >= cmp.Or(c.cfg.CheckpointEntries, checkpointEntries)
}

// Checkpoint queues the write of the state at the applied index, unless it is written
// already or on its way.
func (c *Core) Checkpoint() {
	if op, ok := c.takeCheckpoint(); ok {
		c.writeCommit()
		c.disk.add(write{op: op})
	}
}

func (c *Core) takeCheckpoint() (op raftlog.Checkpoint, ok bool) {
	g := &c.gathered
	if g.entries == 0 || c.digests.index != c.applied { // the latter only after a panic
		return op, false
	}
	op = raftlog.Checkpoint{After: c.checkpoint, Index: c.applied, Term: c.appliedTerm, Digest: c.digests.last, ConfState: g.conf}
	for _, change := range g.changes {
		if !change.none {
			op.Changes = append(op.Changes, change.Change)
		}
	}
	c.gathered = gathered{}
	c.checkpoint = c.applied
	return op, true
}

// LastCheckpoint returns the write of the state at the applied index, for a member that
// stops in order: a caller that carries it out after all other writes saves the next start
// the work. ok is false if there is nothing to write.
func (c *Core) LastCheckpoint() (op raftlog.Op, ok bool) {
	for _, w := range c.disk.queue { // will not be written, and the changes build on it
		switch w.op.(type) {
		case raftlog.Checkpoint, raftlog.Install:
			return nil, false
		}
	}
	return c.takeCheckpoint()
}
