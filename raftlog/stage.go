package raftlog

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/internal/wire"
)

// stageBatch is the approximate size of one write of a snapshot, in bytes.
const stageBatch = 1 << 20

// pairBytes is what a pair takes in memory until it is written, besides key and value.
const pairBytes = 64

// Stage receives a snapshot beside the installed state. It must be used by one
// goroutine, which is not the storage goroutine. Every call may block on the
// disk.
type Stage struct {
	log        *Log
	generation uint64
	changes    []wire.Change
	bytes      int
}

// Stage starts to receive a snapshot. It ends with Stage.Discard, or with
// Stage.Finish and then an Install or Discard operation. The next Open removes a
// stage that did not end.
func (l *Log) Stage() (*Stage, error) {
	s := &Stage{log: l}
	err := l.store.Do(func(*pebble.DB) error {
		if l.written.erased {
			return ErrErased
		}
		l.written.generations++
		s.generation = l.written.generations
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Put adds a pair to the snapshot. It retains both slices.
func (s *Stage) Put(key, value []byte) error {
	if value == nil {
		value = []byte{} // nil would delete
	}
	s.changes = append(s.changes, wire.Change{Key: key, Value: value})
	s.bytes += len(key) + len(value) + pairBytes
	if s.bytes < stageBatch {
		return nil
	}
	return s.flush()
}

// flush writes without a sync: that of Install covers it.
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
	return s.log.store.Do(func(*pebble.DB) error {
		if s.log.written.erased {
			return ErrErased
		}
		return s.log.commit(fill)
	})
}

// Finish writes the remaining pairs and returns the generation for Install.
func (s *Stage) Finish() (generation uint64, err error) { return s.generation, s.flush() }

// Discard removes the stage instead of finishing it.
func (s *Stage) Discard() error {
	s.changes, s.bytes = nil, 0
	return s.batch(func(w *writer) error { return w.deleteGeneration(s.generation) })
}
