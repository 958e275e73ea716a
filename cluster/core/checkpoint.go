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
// at once: the leader notifies others of it once it is durable, and raft starts with the membership of
// the state.
const (
	checkpointBytes    = 1 << 20 // of changes
	checkpointLogBytes = 4 << 20 // of entries behind the checkpoint
	checkpointEntries  = 4096
	checkpointTicks    = 100 // after which a rest is written
)

// gathered is the changes of the entries that were applied since the last checkpoint.
//
// Invariant: the disk with the deletions and then the puts of write is the state that is applied. A
// change that says Created is trusted in one respect only, that the key was not in the state before
// its entry. Whether it is on the disk is another question: it is if its deletion has gathered, and then
// the deletion stays.
type gathered struct {
	changes  []wire.Change  // without a key: a free position
	free     []int          // positions in changes
	at       map[string]int // a key's position in changes, that of its last change
	again    bool           // a key was created that had a position: the former one is not named by at any more
	conf     *raftpb.ConfState
	bytes    int // of changes
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
	if g.at == nil {
		g.at = make(map[string]int)
	}
	for _, c := range changes {
		g.put(c)
	}
}

func (g *gathered) put(c wire.Change) {
	key := unsafe.String(unsafe.SliceData(c.Key), len(c.Key)) // never changed
	if c.Created && c.Value != nil {
		g.insert(key, c) // most have no position, which insert notices without a look-up
		return
	}
	i, ok := g.at[key]
	switch {
	case ok && c.Value == nil && g.changes[i].Created: // it is not on the disk
		g.bytes -= len(c.Key) + len(g.changes[i].Value)
		g.changes[i] = wire.Change{}
		g.free = append(g.free, i)
		delete(g.at, key)
	case ok:
		g.bytes += len(c.Value) - len(g.changes[i].Value)
		g.changes[i].Value = c.Value
	case !c.Created:
		g.insert(key, c)
	}
}

func (g *gathered) insert(key string, c wire.Change) {
	g.bytes += len(c.Key) + len(c.Value)
	i, keys := len(g.changes), len(g.at)
	if n := len(g.free); n > 0 {
		i, g.free = g.free[n-1], g.free[:n-1]
	} else {
		g.changes = append(g.changes, wire.Change{})
	}
	g.at[key] = i
	if len(g.at) == keys { // it may be on the disk
		c.Created, g.again = false, true
	}
	g.changes[i] = c
}

// write returns what a checkpoint writes, in this order: the deletions, then the puts.
func (g *gathered) write() []wire.Change {
	changes := make([]wire.Change, 0, len(g.changes)-len(g.free))
	for _, c := range g.changes {
		if c.Key != nil && c.Value == nil {
			changes = append(changes, c)
		}
	}
	for i, c := range g.changes {
		if c.Value != nil && (!g.again || g.at[string(c.Key)] == i) {
			changes = append(changes, c)
		}
	}
	return changes
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
	op = raftlog.Checkpoint{After: c.checkpoint, Index: c.applied, Term: c.appliedTerm, Digest: c.digests.last, ConfState: g.conf, Changes: g.write()}
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
