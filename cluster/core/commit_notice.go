package core

import (
	"fmt"
	"math"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/raftlog"
)

// A leader tells no other member that a membership change is committed before it has
// applied the change durably. raft does not sync the commit index: a leader that told of
// a demotion and crashed would start again with the old configuration, need the vote of
// the demoted member, whose log may be longer, and that member does not campaign. Two
// voters, one of which left, had no leader any more.
//
// A snapshot is not held back: it may show a change that is being synced.

// changes is the indexes of the membership changes in the log that are not durably
// applied, ascending.
type changes []uint64

// appended notes the changes among entries, which replace the log from the first on.
func (c *changes) appended(entries []*raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	first := entries[0].GetIndex()
	*c = slices.DeleteFunc(*c, func(index uint64) bool { return index >= first })
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal {
			*c = append(*c, e.GetIndex())
		}
	}
}

// stored forgets the changes that a durable operation applies.
func (c *changes) stored(op raftlog.Op) {
	var applied uint64
	switch op := op.(type) {
	case raftlog.Apply:
		applied = op.Index
	case raftlog.Install:
		applied = op.Index
	}
	*c = slices.DeleteFunc(*c, func(index uint64) bool { return index <= applied })
}

// restore notes the changes in the log of a member that starts.
func (c *changes) restore(log *raftlog.Log, applied, last uint64) error {
	for next := applied + 1; next <= last; {
		entries, err := log.Entries(next, last+1, math.MaxUint64)
		if err != nil || len(entries) == 0 {
			return fmt.Errorf("reading the log from %d: %w", next, err)
		}
		c.appended(entries)
		next += uint64(len(entries))
	}
	return nil
}

// limit lowers the commit index of a message to before the first change.
func (c changes) limit(m *raftpb.Message) {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat:
		if len(c) > 0 && m.GetCommit() >= c[0] {
			m.Commit = new(c[0] - 1)
		}
	}
}
