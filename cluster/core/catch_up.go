package core

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// A member that needs a snapshot also needs every entry from there on. If the log were
// truncated meanwhile, the snapshot would be useless when it has arrived, and so would
// the next one. So truncation waits for the member, within bounds: of the log's bytes
// and of the time without progress.
//
// The bytes are as many as the snapshot has sent so far. If the link is at least twice
// as fast as the log grows, half of that is in the log when the snapshot is complete, a
// quarter when those entries are, and so on: together no more than the snapshot. The
// first allowance covers a stall. It is doubled when it was too small, which is when
// the snapshot is cancelled, and the next one sent.
const (
	firstAllowance   = 64 << 20
	largestAllowance = 1 << 30
	// patienceElections is the number of election timeouts without progress after which
	// the log does not wait for a member any more.
	patienceElections = 20
)

// catchUp is what is known of a member that needs a snapshot, or entries after it.
type catchUp struct {
	from      uint64 // the log keeps the entries after this index
	sent      uint64 // bytes of the snapshot
	streaming bool
	kept      bool   // the log waits
	allowance uint64 // bytes of the log
	progress  uint64 // tick of the last progress
}

// SnapshotProgress reports how many bytes of a snapshot were sent.
func (c *Core) SnapshotProgress(peer, bytes uint64) {
	if p := c.peers.byID[peer]; p != nil && p.catchUp != nil && p.catchUp.streaming && bytes > p.catchUp.sent {
		p.catchUp.sent, p.catchUp.progress = bytes, c.ticks
	}
}

// SnapshotSent reports how sending a snapshot ended.
func (c *Core) SnapshotSent(peer uint64, ok bool) {
	status := raft.SnapshotFailure
	if ok {
		status = raft.SnapshotFinish
	}
	c.node.ReportSnapshot(peer, status)
	if p := c.peers.byID[peer]; p != nil {
		p.snapshotEnded()
	}
}

// neededFrom returns the index up to which the log may be truncated, at most index.
func (c *Core) neededFrom(index, keepBytes uint64) uint64 {
	c.followCatchUps(index)
	for _, p := range c.peers.all {
		m := p.catchUp
		if m == nil || !m.kept {
			continue
		}
		allowance := min(max(m.allowance, m.sent), largestAllowance)
		if c.log.Bytes() < 2*keepBytes+allowance {
			index = min(index, m.from)
			continue
		}
		m.kept, m.allowance = false, min(2*allowance, largestAllowance)
		if m.streaming {
			c.out.Cancelled = append(c.out.Cancelled, p.id)
		}
	}
	return index
}

// followCatchUps notes the progress of the members, and removes those that do not need
// the log to wait: they have the entries up to index, or there is no progress.
func (c *Core) followCatchUps(index uint64) {
	if !slices.ContainsFunc(c.peers.all, func(p *peer) bool { return p.catchUp != nil }) {
		return
	}
	c.node.WithProgress(func(id uint64, _ raft.ProgressType, progress tracker.Progress) {
		if p := c.peers.byID[id]; p != nil && p.catchUp != nil && progress.Match > p.catchUp.from {
			p.catchUp.from, p.catchUp.progress = progress.Match, c.ticks
		}
	})
	for _, p := range c.peers.all {
		m := p.catchUp
		if m == nil {
			continue
		}
		caughtUp := !m.streaming && m.from >= index
		if caughtUp || c.ticks > m.progress+patienceElections*uint64(c.cfg.ElectionTicks) {
			p.catchUp = nil
		}
	}
}
