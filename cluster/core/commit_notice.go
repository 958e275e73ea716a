package core

import (
	"fmt"
	"math"
	"slices"

	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/conclave-go/conclave/raftlog"
)

// When a leader notifies other members that a membership change is committed. raft does not
// sync the commit index, so the leader may be the only member that knows of the commit.
//
//  1. It notifies no other member before it has applied the change durably. Otherwise, after a
//     demotion and a crash, it would start again with the old configuration and need the vote
//     of the demoted member. That member's log may be longer, and it does not campaign: with two
//     voters, the one that remains could not elect a leader.
//  2. It notifies the members that do not vote, the demoted one among them, once the change is
//     settled: a majority of the voters knows durably that it is committed. If it notified a
//     demoted member first and was then lost permanently, the remaining voters would
//     need the vote of a member that has a longer log and does not campaign. A voter knows
//     durably once it has acknowledged an entry that the leader proposed afterwards, since
//     that entry and the commit index are written together.
//  3. The next change is proposed once the preceding one is settled. raft is safe because a
//     candidate is at most one membership change behind (Raft dissertation §4.1). A
//     message that carries a change must therefore state that the preceding change is
//     committed, so only the notice of the last change is held back.
//
// A snapshot states that its configuration is committed. So it is not sent before its leader has
// applied the last change in it durably (rule 1; ConfirmSnapshot), although the state that is
// read from the disk may show a change that is being synced; and not to a member that does not
// vote before the change is settled (rule 2; mayTell).
//
// What a snapshot or a truncation has removed from the log may have ended with a change. It may not be
// settled: a leader notifies the voters of a change, also by a snapshot, before a majority
// knows. So the index of the snapshot or truncation counts as a change.

// changes is the indexes of membership changes in the log, and the index before the log where it
// is not that of a new group: a change up to there counts as one there.
type changes struct {
	log     []uint64 // ascending: the last one that is durably applied, and those after it
	applied uint64   // the index up to which the log is durably applied
}

// appended notes the changes among entries, which replace the log from the first on.
func (c *changes) appended(entries []*raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	first := entries[0].GetIndex()
	kept, _ := slices.BinarySearch(c.log, first)
	c.log = c.log[:kept]
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal {
			c.log = append(c.log, e.GetIndex())
		}
	}
}

// replaced notes that a snapshot of the state at index replaces the log. Entries may follow it
// before it is durable.
func (c *changes) replaced(index uint64) { c.log = []uint64{index} }

// stored notes what a durable operation applies.
func (c *changes) stored(op raftlog.Op) {
	switch op := op.(type) {
	case raftlog.Checkpoint:
		c.applied = op.Index
	case raftlog.Install:
		c.applied = op.Index
	}
	for len(c.log) > 1 && c.log[1] <= c.applied {
		c.log = c.log[1:]
	}
}

// restore notes the changes in the log of a member that starts.
func (c *changes) restore(log *raftlog.Log, applied, last uint64) error {
	c.applied = applied
	first, _ := log.FirstIndex() // in memory: never fails
	if before := first - 1; before > raftlog.BootstrapIndex {
		c.log = []uint64{before}
	}
	for next := first; next <= last; {
		entries, err := log.Entries(next, last+1, math.MaxUint64)
		if err != nil || len(entries) == 0 {
			return fmt.Errorf("reading the log from %d: %w", next, err)
		}
		c.appended(entries)
		next += uint64(len(entries))
	}
	c.stored(nil)
	return nil
}

// pending returns the first change that is not durably applied; 0: none. A leader may append
// many, and each message asks: only the first one of log may be applied.
func (c *changes) pending() uint64 {
	for _, index := range c.log[:min(len(c.log), 2)] {
		if index > c.applied {
			return index
		}
	}
	return 0
}

// unsynced reports whether the state at index may show a change that is not durably applied.
func (c *changes) unsynced(index uint64) bool {
	pending := c.pending()
	return pending != 0 && pending <= index
}

// last returns the last change; 0: none.
func (c *changes) last() uint64 {
	if len(c.log) == 0 {
		return 0
	}
	return c.log[len(c.log)-1]
}

// lower lowers the commit index of a message.
func lower(m *raftpb.Message, to uint64) {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat:
		if m.GetCommit() > to {
			m.Commit = &to
		}
	}
}

// settling is what a leader knows of the last membership change.
type settling struct {
	change   uint64 // its index; 0: it is settled, or there is none
	proposed bool   // an entry was proposed after the change was durably applied
	entry    uint64 // that entry; 0: not appended yet
}

// commitNotices is when this member may notify others that a membership change is committed.
type commitNotices struct {
	*raftNode
	changes  changes
	settling settling
}

// beginSettling has a new leader settle the last change: the leader before it may not have done
// so.
func (n *commitNotices) beginSettling() { n.settling = settling{change: n.changes.last()} }

// maySettle reports whether the next entry that the leader proposes settles the last
// change.
func (n *commitNotices) maySettle() bool {
	s := &n.settling
	return s.change != 0 && !s.proposed && n.changes.pending() == 0
}

// proposedSettling notes that the entry that was proposed last settles the last change.
func (n *commitNotices) proposedSettling() { n.settling.proposed = true }

// appended notes the entries at the end of the log, of which those of this leader include the changes
// to settle, and the one that settles the last change once a majority of the voters has
// acknowledged it.
func (n *commitNotices) appended(entries []*raftpb.Entry) {
	before := n.changes.last()
	n.changes.appended(entries)
	s := &n.settling
	if last := n.changes.last(); last != before {
		*s = settling{change: last}
	}
	if s.proposed && s.entry == 0 {
		s.entry = n.last
	}
}

// settled reports whether the last membership change is settled.
func (n *commitNotices) settled() bool {
	s := &n.settling
	if s.change == 0 {
		return true
	}
	if s.entry == 0 {
		return false
	}
	status := n.node.Status()
	if uint64(status.Config.Voters.CommittedIndex(acknowledgedTo(status.Progress))) < s.entry {
		return false
	}
	*s = settling{}
	return true
}

// acknowledgedTo implements quorum.AckedIndexer.
type acknowledgedTo map[uint64]tracker.Progress

func (a acknowledgedTo) AckedIndex(voter uint64) (quorum.Index, bool) {
	p, ok := a[voter]
	return quorum.Index(p.Match), ok
}

// limitNotice lowers the commit index of a message as the rules above demand.
func (n *commitNotices) limitNotice(m *raftpb.Message) {
	if n.changes.pending() != 0 {
		// Not before the first pending one: of two, a member that has the second knows durably
		// that the first is committed, and rule 3 holds back no notice of it.
		lower(m, n.changes.last()-1)
	}
	if !n.settled() && !n.mayVote(m.GetTo()) {
		lower(m, n.settling.change-1)
	}
}

// mayTell reports whether a member may receive a snapshot of the state at index.
func (n *commitNotices) mayTell(to, index uint64) bool {
	return n.settled() || n.mayVote(to) || index < n.settling.change
}
