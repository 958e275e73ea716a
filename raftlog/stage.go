package raftlog

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/internal/wire"
)

// stageBatch is about how much of a snapshot is written at a time.
const stageBatch = 1 << 20

// Stage takes in a snapshot beside the valid state. It is for one goroutine,
// not the storage goroutine, and every call may block on the disk.
type Stage struct {
	log        *Log
	generation uint64
	changes    []wire.Change
	bytes      int
}

// Stage begins to take in a snapshot. Either it is discarded, or its Finish
// leads to an Install or a Discard; one that neither happened to is removed at the next Open.
func (l *Log) Stage() (*Stage, error) {
	s := &Stage{log: l}
	err := l.store.Do(func(*pebble.DB) error {
		l.disk.generations++
		s.generation = l.disk.generations
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Put adds a pair. It keeps both slices.
func (s *Stage) Put(key, value []byte) error {
	if value == nil {
		value = []byte{} // nil would delete
	}
	s.changes = append(s.changes, wire.Change{Key: key, Value: value})
	s.bytes += len(key) + len(value)
	if s.bytes < stageBatch {
		return nil
	}
	return s.flush()
}

// flush writes without a sync: the sync of Install covers it.
func (s *Stage) flush() error {
	changes := s.changes
	s.changes, s.bytes = nil, 0
	return s.batch(func(w *writer) error {
		for _, change := range changes {
			if err := w.change(s.generation, change); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Stage) batch(fill func(*writer) error) error {
	return s.log.store.Do(func(*pebble.DB) error { return s.log.commit(fill) })
}

// Finish writes what is left and returns the generation to install.
func (s *Stage) Finish() (generation uint64, err error) { return s.generation, s.flush() }

// Discard removes what was staged so far, instead of finishing it.
func (s *Stage) Discard() error {
	s.changes, s.bytes = nil, 0
	return s.batch(func(w *writer) error { return w.deleteGeneration(s.generation) })
}
