package core

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/metrics"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// Status is a core's progress.
type Status struct {
	Leader, Term    uint64
	Leads           bool
	Proposing       bool // it leads, and its group time runs
	Commit, Applied uint64
	Reported        uint64        // the commit index that the leader has reported; Commit at least
	Reports         uint64        // how often a leader has reported one
	Stalled         time.Duration // since the oldest write under way, or the oldest entry that this leader has in flight, began
	Installed       uint64        // snapshots since the start
	Membership      *raftpb.ConfState
	Registered      bool // the first call, which registers the process, has its outcome
	Ticks           uint64
	Settled         bool   // a leader's: a majority of the voters knows of the last membership change
	Plan            string // the leader's reconciler: what it does or waits for; "": nothing
}

// PeerProgress is what this member knows of another one's progress.
type PeerProgress struct {
	Heard uint64 // the tick of its last message; 0: none
	Match uint64 // the last entry that it has acknowledged to this leader
}

// reported is the commit index in the last append or digest of a leader. Raft forgets what is
// beyond the end of this member's log, and a heartbeat never has it, so a member that lags
// would not know.
type reported struct{ leader, term, commit, times uint64 }

// append notes the commit index of an append.
func (t *reported) append(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgApp {
		t.note(m.GetFrom(), m.GetTerm(), m.GetCommit())
	}
}

// note notes an index that a member has reported as the leader of a term.
func (t *reported) note(leader, term, commit uint64) {
	switch {
	case term < t.term:
	case t.leader == leader && t.term == term:
		t.commit = max(t.commit, commit)
		t.times++
	default:
		*t = reported{leader, term, commit, t.times + 1}
	}
}

// by returns what a leader has reported in its term. A claim of any other member does not
// count: it may be false.
func (t *reported) by(leader, term uint64) uint64 {
	if t.leader != leader || t.term != term {
		return 0
	}
	return t.commit
}

// Peers returns the progress of the other members.
func (c *Core) Peers() map[uint64]PeerProgress {
	peers := make(map[uint64]PeerProgress, len(c.peers.all))
	for _, p := range c.peers.all {
		peers[p.id] = PeerProgress{Heard: p.heardAt}
	}
	if c.role.RaftState == raft.StateLeader {
		for id, p := range c.node.Status().Progress { // order: of a map
			peers[id] = PeerProgress{Heard: peers[id].Heard, Match: p.Match}
		}
	}
	return peers
}

// HearsLeader reports whether this member leads, or knows a leader and has heard from it within
// two election timeouts. One that never campaigns keeps a leader that it does not hear.
func (c *Core) HearsLeader() bool {
	return c.isLeader() || c.role.Lead != raft.None && c.ticks-c.peers.heardAt(c.role.Lead) <= 2*c.electionTicks
}

// Status returns the progress up to the last Take. It is cheap.
func (c *Core) Status() Status {
	commit := c.node.BasicStatus().GetCommit()
	return Status{
		Leader: c.role.Lead, Term: c.term,
		Leads: c.role.RaftState == raft.StateLeader, Proposing: c.clock.running,
		Commit: commit, Applied: c.applied,
		Reported: max(commit, c.reported.by(c.role.Lead, c.term)), Reports: c.reported.times,
		Stalled:    c.stalled(),
		Installed:  c.installation.installs,
		Membership: c.conf,
		Registered: c.tickets.Registered(),
		Ticks:      c.ticks,
		Settled:    c.notices.changes.pending() == 0 && c.notices.settled(),
		Plan:       c.reconciler.plan.Reason,
	}
}

func (c *Core) stalled() (d time.Duration) {
	if len(c.disk.batch) > 0 {
		d = time.Duration(c.ticks-c.disk.began) * c.heartbeat
	}
	return max(d, c.proposals.longest(c.now))
}

// Machine returns the machine as far as entries are applied.
func (c *Core) Machine() Machine { return c.machine }

// Digest returns the rolling digest of the state and its index.
func (c *Core) Digest() (index, digest uint64) { return c.digests.index, c.digests.last }

// String describes the core for a test's failure.
func (c *Core) String() string {
	s := c.Status()
	return fmt.Sprintf("term %d, leader %v, commit %d, applied %d, log to %d, settling %+v, changes %+v, %v, plan %q",
		s.Term, wire.MemberID(s.Leader), s.Commit, s.Applied, c.last, c.notices.settling, c.notices.changes, s.Membership, s.Plan)
}

// Metrics is what a core counts and measures. Other goroutines may read it at any time.
type Metrics struct {
	Commit   *metrics.Histogram // ns from the proposal of each entry by this leader until it is applied here
	Commands *metrics.Histogram // in each entry that this leader has proposed
	Resent   metrics.Counter    // commands that were sent again, as their outcomes had not come
}

func newMetrics() *Metrics {
	return &Metrics{Commit: metrics.NewDurations(), Commands: metrics.New(0, 12)}
}

// Metrics returns what this core counts.
func (c *Core) Metrics() *Metrics { return c.metrics }

// Backlog is the calls of a process without an outcome.
type Backlog = tickets.Backlog
