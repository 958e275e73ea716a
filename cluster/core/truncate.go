package core

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/conclave-go/conclave/raftlog"
)

// stateShare is the part of the state's size that the log may have before it is
// truncated: what is cheaper to send than the state is worth its memory.
const stateShare = 8

// truncation is how far the log is truncated, and the members that it waits for.
type truncation struct {
	*raftNode
	peers       *peers
	disk        *disk
	checkpoints *checkpoints
	out         *Effects

	keep, keepBytes uint64 // of Config
	truncated       uint64 // the index up to which the log was last asked to truncate
}

// truncate truncates the log behind the applied entry once that is worth a write. It
// keeps some applied entries, from which a lagging member catches up without a snapshot,
// the more the larger a snapshot would be; those that a member with a snapshot in
// flight needs after it; and for a while all of them while voters differ.
func (t *truncation) truncate(stateSize uint64, disputed bool) {
	first, _ := t.log.FirstIndex()
	if first <= t.truncated {
		return // in flight; Bytes still counts it
	}
	keep, keepBytes := t.retention(stateSize)
	if t.applied < first+2*keep && t.log.Bytes() < 2*keepBytes {
		return
	}
	if disputed && t.log.Bytes() < 2*keepBytes+firstAllowance {
		return // a voter that returns decides by its own log: no snapshot is sent
	}
	if t.log.Bytes() >= 2*keepBytes {
		keep = min(keep, (t.applied-first)/2)
	}
	if t.applied < first+keep {
		return
	}
	if index := t.neededFrom(t.applied-keep, keepBytes); index >= first {
		if index > t.checkpoints.checkpoint {
			t.checkpoints.Checkpoint()
		}
		t.truncated = index
		t.disk.add(write{op: raftlog.Truncate{Index: index}})
	}
}

// retention returns how many applied entries and bytes the log keeps at least.
func (t *truncation) retention(stateSize uint64) (entries, bytes uint64) {
	factor := max(1, stateSize/stateShare/max(1, t.keepBytes))
	return factor * t.keep, factor * t.keepBytes
}

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
func (t *truncation) SnapshotProgress(peer, bytes uint64) {
	if p := t.peers.byID[peer]; p != nil && p.catchUp != nil && p.catchUp.streaming && bytes > p.catchUp.sent {
		p.catchUp.sent, p.catchUp.progress = bytes, t.ticks
	}
}

// neededFrom returns the index up to which the log may be truncated, at most index.
func (t *truncation) neededFrom(index, keepBytes uint64) uint64 {
	t.followCatchUps(index)
	for _, p := range t.peers.all {
		m := p.catchUp
		if m == nil || !m.kept {
			continue
		}
		allowance := min(max(m.allowance, m.sent), largestAllowance)
		if t.log.Bytes() < 2*keepBytes+allowance {
			index = min(index, m.from)
			continue
		}
		m.kept, m.allowance = false, min(2*allowance, largestAllowance)
		if m.streaming {
			t.out.Cancelled = append(t.out.Cancelled, p.id)
		}
	}
	return index
}

// followCatchUps notes the progress of the members, and removes those that do not need
// the log to wait: they have the entries up to index, or there is no progress.
func (t *truncation) followCatchUps(index uint64) {
	if !slices.ContainsFunc(t.peers.all, func(p *peer) bool { return p.catchUp != nil }) {
		return
	}
	t.node.WithProgress(func(id uint64, _ raft.ProgressType, progress tracker.Progress) {
		if p := t.peers.byID[id]; p != nil && p.catchUp != nil && progress.Match > p.catchUp.from {
			p.catchUp.from, p.catchUp.progress = progress.Match, t.ticks
		}
	})
	for _, p := range t.peers.all {
		m := p.catchUp
		if m == nil {
			continue
		}
		caughtUp := !m.streaming && m.from >= index
		waits := m.streaming && !m.kept // until other snapshots have been sent
		if caughtUp || !waits && t.ticks > m.progress+patienceElections*t.electionTicks {
			p.catchUp = nil
		}
	}
}
