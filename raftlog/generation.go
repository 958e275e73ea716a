package raftlog

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/internal/wire"
)

// The state is stored in generations, of which one is installed. A snapshot is
// staged as a new generation, so that installing it takes one small batch.

func (w *writer) change(generation uint64, change wire.Change) error {
	key := w.group.state(generation, change.Key)
	if change.Value == nil {
		return w.batch.Delete(key, nil)
	}
	return w.batch.Set(key, change.Value, nil)
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
	return w.batch.DeleteRange(prefix, prefixEnd(prefix), nil)
}

// removeUnusedGenerations removes stages that were neither installed nor
// discarded before a restart.
func (l *Log) removeUnusedGenerations(db *pebble.DB) error {
	if l.store.ReadOnly() {
		return nil
	}
	unused, err := unusedGenerations(db, l.group, l.written.generation)
	if err != nil || len(unused) == 0 {
		return err
	}
	batch := db.NewBatch()
	defer batch.Close()
	w := &writer{group: l.group, commit: &commit{batch: batch}}
	for _, generation := range unused {
		if err := w.deleteGeneration(generation); err != nil {
			return err
		}
	}
	return batch.Commit(pebble.NoSync)
}

// unusedGenerations seeks from one generation to the next without reading their
// content.
func unusedGenerations(r pebble.Reader, g group, used uint64) (unused []uint64, err error) {
	kind := g.key(kindState)
	iter, err := r.NewIter(&pebble.IterOptions{LowerBound: kind, UpperBound: prefixEnd(kind)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for valid := iter.First(); valid; {
		generation, ok := keyNumber(iter.Key())
		if !ok {
			return nil, corruptf("key %x of the state has no generation", iter.Key())
		}
		if generation != used {
			unused = append(unused, generation)
		}
		valid = iter.SeekGE(prefixEnd(g.state(generation, nil)))
	}
	return unused, iter.Error()
}
