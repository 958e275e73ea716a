package raftlog

import "fmt"

// write switches to the staged generation atomically: before it the old state
// and its log are valid, after it the new state and an empty log.
func (i Install) write(w *writer) error {
	if i.Index <= w.applied.Index {
		return fmt.Errorf("snapshot at index %d: the log is applied to %d", i.Index, w.applied.Index)
	}
	if i.Generation > w.generations || i.Generation == w.generation && w.applied.Index > 0 {
		return fmt.Errorf("generation %d is not staged", i.Generation)
	}
	hard := i.HardState
	if hard == nil {
		hard = w.hard
	}
	if err := w.setHardState(withCommit(hard, i.Index)); err != nil {
		return err
	}
	if err := w.setMessage(kindConfState, i.ConfState); err != nil {
		return err
	}
	entries := w.group.key(kindEntry)
	if err := w.batch.DeleteRange(entries, prefixEnd(entries), nil); err != nil {
		return err
	}
	w.positions = nil
	w.sync, w.syncWatermark = true, true
	if err := w.setTruncated(position{index: i.Index, term: i.Term}); err != nil {
		return err
	}
	if err := w.setApplied(Applied{i.Index, i.Term, i.Digest}); err != nil {
		return err
	}
	return w.setGeneration(i.Generation)
}

func (d Discard) write(w *writer) error {
	if d.Generation == w.generation {
		return fmt.Errorf("generation %d is installed", d.Generation)
	}
	return w.deleteGeneration(d.Generation)
}
