package core

import (
	"cmp"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/raftlog"
)

// disk keeps writes in order, with one batch in flight. Later writes gather for the next
// batch, so that a slower disk syncs more of them at once.
type disk struct {
	queue []write
	batch []write // under way
	since uint64  // tick at which the disk last finished a batch or was idle
	began uint64  // tick at which it began this batch

	hard   *raftpb.HardState // written last, or on its way
	commit *raftpb.HardState // the same with a later commit index, to be written with the next entries; nil: none
}

// write is an operation on the disk and the messages that depend on it.
type write struct {
	op        raftlog.Op // nil: the responses only wait for the writes before
	responses []*raftpb.Message
}

func (d *disk) add(w write) { d.queue = append(d.queue, w) }

// next returns the batch that may be written now.
func (d *disk) next(tick uint64) []write {
	if len(d.batch) > 0 {
		return nil
	}
	d.since = tick
	d.batch, d.queue = d.queue, nil
	d.began = d.since
	return d.batch
}

// isIdle reports whether nothing is written, or waits for it.
func (d *disk) isIdle() bool { return len(d.batch)+len(d.queue) == 0 && d.commit == nil }

// answer makes the queue the batch under way if nothing of it must be written: then
// its responses depend only on what is durable.
func (d *disk) answer() bool {
	if len(d.batch) > 0 || len(d.queue) == 0 || slices.ContainsFunc(d.queue, func(w write) bool { return w.op != nil }) {
		return false
	}
	d.batch, d.queue = d.queue, nil
	return true
}

// noteHardState notes that a hard state, unless nil, is being written.
func (d *disk) noteHardState(hard *raftpb.HardState) {
	d.hard, d.commit = cmp.Or(hard, d.hard), nil
}

// writeCommit writes a commit index that no entry has taken along. Nothing waits for it:
// a member that starts with an older one learns of it from the leader.
func (d *disk) writeCommit() {
	if d.commit != nil {
		d.add(write{op: raftlog.Append{HardState: d.commit}})
		d.noteHardState(d.commit)
	}
}

// Batch is a sequence of writes that become durable together.
type Batch struct{ writes []write }

func (b Batch) isEmpty() bool { return len(b.writes) == 0 }

// Ops returns the operations in order. Core.Stored must be called even if there is none.
func (b Batch) Ops() (ops []raftlog.Op) {
	for _, w := range b.writes {
		if w.op != nil {
			ops = append(ops, w.op)
		}
	}
	return ops
}

// Installs reports whether the batch installs a snapshot. Stored then needs the
// machine loaded from it.
func (b Batch) Installs() bool {
	for _, w := range b.writes {
		if _, ok := w.op.(raftlog.Install); ok {
			return true
		}
	}
	return false
}

// Stored reports that the batch in flight is durable. installed is the machine loaded
// from the snapshot that it installs, if any.
func (c *Core) Stored(installed Machine) {
	batch := c.disk.batch
	c.disk.batch, c.disk.since = nil, c.ticks
	for _, w := range batch {
		if w.op != nil {
			c.log.Wrote(w.op)
			c.notices.changes.stored(w.op)
		}
		if op, ok := w.op.(raftlog.Install); ok {
			c.installed(installed, op)
		}
		for _, m := range w.responses {
			if m.GetTo() == c.id {
				c.step(m)
			} else {
				c.send(m)
			}
		}
	}
	c.truncation.count()
}
