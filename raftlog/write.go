package raftlog

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// writer collects the operations of one log in a commit and advances the write state.
type writer struct {
	*writeState
	*commit
	group group
}

// Write carries out the operations in one atomic batch and returns when it is as
// durable as the operations require. It runs on the storage goroutine. It
// refuses an operation that contradicts the log; after any error all further
// writes fail, of the logs of all groups.
func (l *Log) Write(ops []Op) error {
	return l.journal.write(func(c *commit) error { return l.fill(c, ops) })
}

// fill adds the operations to a commit.
func (l *Log) fill(c *commit, ops []Op) error {
	return l.change(c, func(w *writer) error {
		for _, op := range ops {
			if err := op.write(w); err != nil {
				return fmt.Errorf("%T: %w", op, err)
			}
		}
		return nil
	})
}

// change adds what fill writes to a commit, unless it is what Open refuses.
func (l *Log) change(c *commit, fill func(*writer) error) error {
	w := &writer{writeState: &l.written, commit: c, group: l.group}
	if err := fill(w); err != nil {
		return err
	}
	return w.verify()
}

// commit fills a batch of its own and writes it, on the storage goroutine.
func (l *Log) commit(fill func(*writer) error) error {
	return l.journal.write(func(c *commit) error { return l.change(c, fill) })
}

func (a Append) write(w *writer) error {
	committed := max(w.applied.Index, w.hard.GetCommit()) // as the operations before show
	if err := w.setHardState(a.HardState); err != nil {
		return err
	}
	if len(a.Entries) == 0 {
		return nil
	}
	first := a.Entries[0].GetIndex()
	previous, ok := w.at(first - 1)
	if !ok || first <= committed {
		return fmt.Errorf("entries from %d: the log ends at %d and is committed to %d", first, w.last().index, committed)
	}
	oldLast := w.last().index
	w.positions = w.positions[:first-1-w.truncated.index]
	for _, e := range a.Entries {
		if e.GetIndex() != previous.index+1 || e.GetTerm() < previous.term {
			return fmt.Errorf("entry %d of term %d follows entry %d of term %d", e.GetIndex(), e.GetTerm(), previous.index, previous.term)
		}
		previous = previous.next(e)
		w.positions = append(w.positions, previous)
		if err := w.batch.Set(w.group.entry(previous.index), encodeEntry(e, previous.chain), nil); err != nil {
			return err
		}
	}
	w.sync = true
	if oldLast <= previous.index {
		return nil
	}
	return w.batch.DeleteRange(w.group.entry(previous.index+1), w.group.entry(oldLast+1), nil)
}

// setHardState writes the hard state. It refuses a term that decreases and a
// second vote in one term, which would break a promise to other members.
func (w *writer) setHardState(hard *raftpb.HardState) error {
	if hard == nil {
		return nil
	}
	term, vote := w.hard.GetTerm(), w.hard.GetVote()
	if hard.GetTerm() < term || hard.GetTerm() == term && vote != 0 && hard.GetVote() != vote {
		return fmt.Errorf("hard state %v after %v: term or vote taken back", hard, w.hard)
	}
	if hard.GetTerm() != term || hard.GetVote() != vote {
		w.sync, w.syncWatermark = true, true
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

func (w *writer) setTruncated(p position) error {
	w.truncated = p
	return w.batch.Set(w.group.key(kindTruncated), encodeNumbers(p.index, p.term, uint64(p.chain)), nil)
}

func (c Checkpoint) write(w *writer) error {
	p, ok := w.at(c.Index)
	if !ok || p.term != c.Term || c.Index <= w.applied.Index {
		return fmt.Errorf("index %d of term %d: the log ends at %d and is applied to %d", c.Index, c.Term, w.last().index, w.applied.Index)
	}
	if c.After != w.applied.Index {
		return fmt.Errorf("changes since index %d: the state is that at %d", c.After, w.applied.Index)
	}
	if c.ConfState != nil {
		w.sync = true // a leader notifies others of the change afterwards
		if err := w.setMessage(kindConfState, c.ConfState); err != nil {
			return err
		}
	}
	for _, change := range c.Changes {
		if err := w.change(w.generation, change); err != nil {
			return err
		}
	}
	return w.setApplied(Applied{c.Index, c.Term, c.Digest})
}

func (t Truncate) write(w *writer) error {
	if t.Index <= w.truncated.index {
		return nil
	}
	p, ok := w.at(t.Index)
	if !ok || t.Index > w.applied.Index {
		return fmt.Errorf("up to index %d: the log ends at %d and is applied to %d", t.Index, w.last().index, w.applied.Index)
	}
	if err := w.batch.DeleteRange(w.group.entry(0), w.group.entry(t.Index+1), nil); err != nil {
		return err
	}
	w.positions = append([]position(nil), w.positions[t.Index-w.truncated.index:]...)
	return w.setTruncated(p)
}
