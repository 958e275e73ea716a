package raftlog

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/wire"
)

func (w *writer) change(generation uint64, change wire.Change) error {
	key := w.group.state(generation, change.Key)
	if change.Value == nil {
		return w.batch.Delete(key, nil)
	}
	return w.batch.Set(key, change.Value, nil)
}

// write switches to the staged generation in one step: before it the old state
// with its log is valid, after it the new one with none.
func (i Install) write(w *writer) error {
	if i.Index <= w.applied.Index {
		return fmt.Errorf("index %d, in a log that is applied to %d", i.Index, w.applied.Index)
	}
	if i.Generation > w.generations || i.Generation == w.generation && w.applied.Index > 0 {
		return fmt.Errorf("generation %d was not staged", i.Generation)
	}
	hard := i.HardState
	if hard == nil {
		hard = w.hard
	}
	if err := w.setHardState(committed(hard, i.Index)); err != nil {
		return err
	}
	if err := w.setMessage(kindConfState, i.ConfState); err != nil {
		return err
	}
	entries := w.group.key(kindEntry)
	if err := w.batch.DeleteRange(entries, after(entries), nil); err != nil {
		return err
	}
	w.marks = nil
	w.sync, w.vow = true, true
	if err := w.setTruncated(mark{index: i.Index, term: i.Term}); err != nil {
		return err
	}
	if err := w.setApplied(Applied{i.Index, i.Term, i.Digest}); err != nil {
		return err
	}
	return w.setGeneration(i.Generation)
}

func (w *writer) setGeneration(generation uint64) error {
	if generation == w.generation {
		return nil
	}
	if err := w.deleteGeneration(w.generation); err != nil {
		return err
	}
	w.generation = generation
	return w.batch.Set(w.group.key(kindGeneration), encodeNumbers(generation), nil)
}

func (w *writer) deleteGeneration(generation uint64) error {
	prefix := w.group.state(generation, nil)
	return w.batch.DeleteRange(prefix, after(prefix), nil)
}

func (d Discard) write(w *writer) error {
	if d.Generation == w.generation {
		return fmt.Errorf("generation %d is the valid one", d.Generation)
	}
	return w.deleteGeneration(d.Generation)
}

func (Discard) remember(*memory) {}
