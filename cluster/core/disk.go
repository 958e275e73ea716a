package core

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/raftlog"
)

// disk keeps the writes in their order, one batch under way at a time. What comes
// meanwhile goes into the next, so that the slower the disk is, the more one sync
// serves.
type disk struct {
	queue []write
	batch []write // handed out, and not reported as written yet
	since uint64  // tick at which the disk last finished a batch, or had nothing to do
}

// write is one operation on the disk and what may be sent once it is done.
type write struct {
	op        raftlog.Op // nil: nothing to write, only an order to keep
	responses []*raftpb.Message
}

func (d *disk) add(w write) { d.queue = append(d.queue, w) }

// next takes what may go to the disk now.
func (d *disk) next(tick uint64) []write {
	if len(d.batch) > 0 {
		return nil
	}
	d.since = tick
	d.batch, d.queue = d.queue, nil
	return d.batch
}

// Batch is what is to become durable in one piece.
type Batch struct{ writes []write }

// Ops are the operations in their order; there may be none, and then only an order
// is to be kept.
func (b Batch) Ops() (ops []raftlog.Op) {
	for _, w := range b.writes {
		if w.op != nil {
			ops = append(ops, w.op)
		}
	}
	return ops
}

// Installs reports whether a snapshot becomes the state. Its machine has to be
// loaded then, for Stored.
func (b Batch) Installs() bool {
	for _, w := range b.writes {
		if _, ok := w.op.(raftlog.Install); ok {
			return true
		}
	}
	return false
}

// Stored says that the batch under way is durable. With a snapshot in it comes the
// machine that was loaded from it.
func (c *Core) Stored(installed Machine) {
	batch := c.disk.batch
	c.disk.batch, c.disk.since = nil, c.ticks
	for _, w := range batch {
		if w.op != nil {
			c.log.Wrote(w.op)
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
}
