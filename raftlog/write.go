package raftlog

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// writer gathers operations in one batch and moves the disk half along.
type writer struct {
	*disk
	group group
	batch *pebble.Batch
	sync  bool // the batch has to be durable
	vow   bool // and the watermark with it
}

// Write carries the operations out, all or none, and returns when those that
// have to be are durable. It runs on the storage goroutine. An operation that
// does not fit the log is refused; after any error the log takes no more.
func (l *Log) Write(ops []Op) error {
	return l.commit(func(w *writer) error {
		for _, op := range ops {
			if err := op.write(w); err != nil {
				return fmt.Errorf("%T: %w", op, err)
			}
		}
		return nil
	})
}

// commit has a batch filled and writes it, on the storage goroutine.
func (l *Log) commit(fill func(*writer) error) error {
	if l.disk.failed != nil {
		return l.disk.failed
	}
	db, giveBack, err := l.store.Borrow()
	if err != nil {
		return err
	}
	defer giveBack()
	batch := db.NewBatch()
	defer batch.Close()
	w := &writer{disk: &l.disk, group: l.group, batch: batch}
	if err = fill(w); err == nil {
		err = w.commit()
	}
	if err != nil {
		l.disk.failed = fmt.Errorf("the log failed before: %w", err)
	}
	return err
}

// commit writes the batch, and where it is synced its number with it.
func (w *writer) commit() error {
	if err := w.verify(); err != nil { // what Open would refuse is not written
		return err
	}
	if !w.sync {
		return w.batch.Commit(pebble.NoSync)
	}
	w.synced++
	if err := w.batch.Set(w.group.key(kindSynced), encodeNumbers(w.synced), nil); err != nil {
		return err
	}
	if err := w.batch.Commit(pebble.Sync); err != nil {
		return err
	}
	return w.watermark.rise(w.synced, w.vow)
}

func (a Append) write(w *writer) error {
	if err := w.setHardState(a.HardState); err != nil {
		return err
	}
	if len(a.Entries) == 0 {
		return nil
	}
	first := a.Entries[0].GetIndex()
	previous, ok := w.at(first - 1)
	if !ok || first <= w.applied.Index {
		return fmt.Errorf("entries from %d on do not fit a log that ends at %d and is applied to %d", first, w.last().index, w.applied.Index)
	}
	stale := w.last().index
	w.marks = w.marks[:first-1-w.truncated.index]
	for _, e := range a.Entries {
		if e.GetIndex() != previous.index+1 || e.GetTerm() < previous.term {
			return fmt.Errorf("entry %d of term %d follows entry %d of term %d", e.GetIndex(), e.GetTerm(), previous.index, previous.term)
		}
		previous = follow(previous, e)
		w.marks = append(w.marks, previous)
		if err := w.batch.Set(w.group.entry(previous.index), encodeEntry(e, previous.chain), nil); err != nil {
			return err
		}
	}
	w.sync = true
	if stale <= previous.index {
		return nil
	}
	return w.batch.DeleteRange(w.group.entry(previous.index+1), w.group.entry(stale+1), nil)
}

// setHardState writes the hard state. A term that sinks, or a second vote in
// one term, would be a promise broken.
func (w *writer) setHardState(hard *raftpb.HardState) error {
	if hard == nil {
		return nil
	}
	term, vote := w.hard.GetTerm(), w.hard.GetVote()
	if hard.GetTerm() < term || hard.GetTerm() == term && vote != 0 && hard.GetVote() != vote {
		return fmt.Errorf("the hard state goes back: %v after %v", hard, w.hard)
	}
	if hard.GetTerm() != term || hard.GetVote() != vote {
		w.sync, w.vow = true, true
	}
	w.hard = proto.CloneOf(hard)
	return w.setMessage(kindHardState, w.hard)
}

func (w *writer) setMessage(kind byte, m proto.Message) error {
	record, err := encodeMessage(m)
	if err != nil {
		return err
	}
	return w.batch.Set(w.group.key(kind), record, nil)
}

func (w *writer) setApplied(a Applied) error {
	w.applied = a
	return w.batch.Set(w.group.key(kindApplied), encodeNumbers(a.Index, a.Term, a.Digest), nil)
}

func (w *writer) setTruncated(m mark) error {
	w.truncated = m
	return w.batch.Set(w.group.key(kindTruncated), encodeNumbers(m.index, m.term, uint64(m.chain)), nil)
}

func (a Apply) write(w *writer) error {
	m, ok := w.at(a.Index)
	if !ok || m.term != a.Term || a.Index <= w.applied.Index {
		return fmt.Errorf("index %d of term %d, in a log that ends at %d and is applied to %d", a.Index, a.Term, w.last().index, w.applied.Index)
	}
	if a.ConfState != nil {
		if err := w.setMessage(kindConfState, a.ConfState); err != nil {
			return err
		}
	}
	for _, change := range a.Changes {
		if err := w.change(w.generation, change); err != nil {
			return err
		}
	}
	return w.setApplied(Applied{a.Index, a.Term, a.Digest})
}

func (t Truncate) write(w *writer) error {
	if t.Index <= w.truncated.index {
		return nil
	}
	m, ok := w.at(t.Index)
	if !ok || t.Index > w.applied.Index {
		return fmt.Errorf("up to %d, in a log that ends at %d and is applied to %d", t.Index, w.last().index, w.applied.Index)
	}
	if err := w.batch.DeleteRange(w.group.entry(0), w.group.entry(t.Index+1), nil); err != nil {
		return err
	}
	w.marks = append([]mark(nil), w.marks[t.Index-w.truncated.index:]...)
	return w.setTruncated(m)
}
