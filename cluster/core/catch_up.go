package core

import (
	"maps"
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

// catchUps is the members that need a snapshot, or entries after it.
type catchUps map[uint64]*catchUp

type catchUp struct {
	from      uint64 // the log keeps the entries after this index
	sent      uint64 // bytes of the snapshot
	streaming bool
	kept      bool   // the log waits
	allowance uint64 // bytes of the log
	progress  uint64 // tick of the last progress
}

// begin notes a snapshot in flight.
func (u *catchUps) begin(to, index, tick uint64) {
	if *u == nil {
		*u = make(catchUps)
	}
	m := (*u)[to]
	if m == nil {
		m = &catchUp{allowance: firstAllowance}
		(*u)[to] = m
	}
	m.from, m.sent, m.streaming, m.kept, m.progress = index, 0, true, true, tick
}

func (u *catchUps) clear() { *u = nil }

// SnapshotProgress reports how many bytes of a snapshot were sent.
func (c *Core) SnapshotProgress(peer, bytes uint64) {
	if m := c.catchUps[peer]; m != nil && m.streaming && bytes > m.sent {
		m.sent, m.progress = bytes, c.ticks
	}
}

// SnapshotSent reports how sending a snapshot ended.
func (c *Core) SnapshotSent(peer uint64, ok bool) {
	status := raft.SnapshotFailure
	if ok {
		status = raft.SnapshotFinish
	}
	c.node.ReportSnapshot(peer, status)
	delete(c.unconfirmed, peer)
	if m := c.catchUps[peer]; m != nil {
		m.streaming = false
	}
}

// neededFrom returns the index up to which the log may be truncated, at most index.
func (c *Core) neededFrom(index, keepBytes uint64) uint64 {
	c.followCatchUps(index)
	for _, peer := range slices.Sorted(maps.Keys(c.catchUps)) {
		m := c.catchUps[peer]
		if !m.kept {
			continue
		}
		allowance := min(max(m.allowance, m.sent), largestAllowance)
		if c.log.Bytes() < 2*keepBytes+allowance {
			index = min(index, m.from)
			continue
		}
		m.kept, m.allowance = false, min(2*allowance, largestAllowance)
		if m.streaming {
			c.out.Cancelled = append(c.out.Cancelled, peer)
		}
	}
	return index
}

// followCatchUps notes the progress of the members, and removes those that do not need
// the log to wait: they have the entries up to index, or there is no progress.
func (c *Core) followCatchUps(index uint64) {
	if len(c.catchUps) == 0 {
		return
	}
	c.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if m := c.catchUps[id]; m != nil && p.Match > m.from {
			m.from, m.progress = p.Match, c.ticks
		}
	})
	maps.DeleteFunc(c.catchUps, func(_ uint64, m *catchUp) bool {
		caughtUp := !m.streaming && m.from >= index
		return caughtUp || c.ticks > m.progress+patienceElections*uint64(c.cfg.ElectionTicks)
	})
}
