package core

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// Status is how far a core is.
type Status struct {
	Leader, Term    uint64
	Leads           bool
	InOffice        bool // it leads, and its group time runs: it proposes
	Commit, Applied uint64
	Installed       uint64 // snapshots since the start
	Membership      *raftpb.ConfState
}

// Status is cheap.
func (c *Core) Status() Status {
	return Status{
		Leader: c.role.Lead, Term: c.term,
		Leads: c.role.RaftState == raft.StateLeader, InOffice: c.clock.running,
		Commit: c.node.BasicStatus().GetCommit(), Applied: c.applied,
		Installed:  c.installs,
		Membership: c.conf,
	}
}

// Machine is the state as far as it is applied.
func (c *Core) Machine() Machine { return c.machine }

// Incarnation is what the calls of this process are made under.
func (c *Core) Incarnation() wire.ID { return c.incarnation }

// Digest is the rolling digest of the state up to an index.
func (c *Core) Digest() (index, digest uint64) { return c.digests.index, c.digests.last }
