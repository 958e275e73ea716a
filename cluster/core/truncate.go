package core

import (
	"math"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/conclave-go/conclave/internal/budget"
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
	logs            *Logs  // of Config
	counted         int    // bytes of the log in logs
	truncated       uint64 // the index up to which the log was last asked to truncate

	older, recent uint64 // what was applied an election timeout ago at least, and up to one ago
}

// Logs is what the logs of several groups in one process may have together. Each keeps entries for members that lag behind, and of a thousand groups
// they would be more memory than a process has. So a log that has more than its part is truncated as if it had reached its own bound, also one with nothing
// to do: a member that is down may need a snapshot then. What a member has not acknowledged that is up, and what was applied in the last election
// timeout, is kept up to that bound, and for one with a snapshot beyond it, while the larger budget has a part for that.
type Logs struct{ kept, awaited *budget.Budget }

const (
	maxLogs        = 256 << 20 // as much as of 16 groups by themselves
	maxAwaitedLogs = 1 << 30
	leastLog       = 256 << 10 // of each group in any case
)

// NewLogs returns so many bytes for all, more while they wait for members, and the least of each.
func NewLogs(kept, awaited, least int64) *Logs {
	return &Logs{budget.New(kept, least), budget.New(awaited, least)}
}

// Bytes returns the bytes of all logs.
func (l *Logs) Bytes() int { return l.kept.Taken() }

// allowed returns how many bytes a log may have that has most by itself, and how many while it waits for members.
func (l *Logs) allowed(most uint64) (kept, awaited uint64) {
	if l == nil {
		return most, math.MaxUint64
	}
	return uint64(l.kept.Allowed(int(most))), uint64(l.awaited.Allowed(math.MaxInt))
}

// count counts the bytes of the log.
func (t *truncation) count() { t.countAs(int(t.log.Bytes())) }

func (t *truncation) countAs(bytes int) {
	if t.logs != nil {
		t.logs.kept.Take(bytes - t.counted)
		t.logs.awaited.Take(bytes - t.counted)
		t.counted = bytes
	}
}

// exceeds reports whether the log has more than its part of what several share.
func (t *truncation) exceeds(stateSize uint64) bool {
	_, keepBytes := t.retention(stateSize)
	kept, _ := t.logs.allowed(2 * keepBytes)
	return t.logs != nil && t.log.Bytes() >= kept
}

// tick notes what has been applied for an election timeout.
func (t *truncation) tick() {
	if t.ticks%t.electionTicks == 0 {
		t.older, t.recent = t.recent, t.applied
	}
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
	kept, awaited := t.logs.allowed(2 * keepBytes)
	many := t.applied >= first+2*keep
	if !many && t.log.Bytes() < kept {
		return
	}
	if disputed && t.log.Bytes() < 2*keepBytes+firstAllowance {
		return // a voter that returns decides by its own log: no snapshot is sent
	}
	if t.log.Bytes() >= kept {
		keep = min(keep, (t.applied-first)/2)
	}
	if t.applied < first+keep {
		return
	}
	index := t.neededFrom(t.applied-keep, keepBytes, awaited)
	if bytes := t.log.Bytes(); !many && bytes >= kept && bytes < min(2*keepBytes, awaited) {
		index = t.acknowledgedUpTo(min(index, t.older)) // any member may lead next, and knows no better
	}
	if index >= first {
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

// neededFrom returns the index up to which the log may be truncated, at most index. It may have awaited bytes while it waits.
func (t *truncation) neededFrom(index, keepBytes, awaited uint64) uint64 {
	t.followCatchUps(index)
	for _, p := range t.peers.all {
		m := p.catchUp
		if m == nil || !m.kept {
			continue
		}
		allowance := min(max(m.allowance, m.sent), largestAllowance)
		if t.log.Bytes() < min(2*keepBytes+allowance, awaited) {
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

// acknowledgedUpTo returns the index up to which each member has the log that is up and needs no snapshot, at most index; 0 if that is not worth a
// write. A log that is truncated for others, before it has reached its own bound, is truncated no further.
func (t *truncation) acknowledgedUpTo(index uint64) uint64 {
	first, _ := t.log.FirstIndex() // in memory: never fails
	switch {
	case index < first:
		return 0
	case !t.isLeader():
		return index
	}
	worth := first + (index-first)/2
	t.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		unknown := p.Match == 0 && p.Next >= first && p.State != tracker.StateSnapshot // it has not answered this leader yet
		if id != t.id && t.isUp(id) && (unknown || p.Match > 0 && p.Match+1 >= first) {
			index = min(index, p.Match)
		}
	})
	if index < worth {
		return 0
	}
	return index
}

// isUp reports whether a member was heard in the last election timeout, also if its connection was lost then: it may have another one.
func (t *truncation) isUp(id uint64) bool {
	p := t.peers.byID[id]
	return p != nil && p.heardAt > 0 && t.ticks < p.heardAt+t.electionTicks
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
