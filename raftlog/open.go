package raftlog

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/storage"
)

// Open reads and checks the log of the default group; without records it is empty. The log is closed with the store.
//
// Damage, and the loss of acknowledged entries, is storage.ErrCorrupt; a format
// of a newer version is storage.ErrNewer.
func Open(store *storage.Store) (*Log, error) {
	l := &Log{store: store, journal: &journal{store: store, turns: newTurns(store.Inline())}}
	return l.opened(func(db *pebble.DB) error {
		synced, err := l.open(db)
		if err != nil {
			return err
		}
		if err := l.journal.open(synced); err != nil {
			return err
		}
		return l.removeUnusedGenerations(db)
	})
}

// OpenGroup is Open for the log of another group in the same store.
func (l *Log) OpenGroup(number uint32) (*Log, error) {
	other := &Log{store: l.store, journal: l.journal, group: group(number)}
	return other.opened(func(db *pebble.DB) error {
		if _, err := other.open(db); err != nil {
			return err
		}
		return other.removeUnusedGenerations(db)
	})
}

func (l *Log) opened(open func(*pebble.DB) error) (*Log, error) {
	store := l.store
	err := store.Do(open)
	if pebble.IsCorruptionError(err) {
		err = fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	switch {
	case errors.Is(err, storage.ErrCorrupt):
		return nil, fmt.Errorf("raft log in %s: %w: %s", store.Dir(), err, storage.CorruptAdvice)
	case err != nil:
		return nil, fmt.Errorf("raft log in %s: %w", store.Dir(), err)
	}
	return l, nil
}

func (l *Log) open(db *pebble.DB) (synced uint64, err error) {
	h, err := readHeader(db, l.group)
	if err != nil {
		return 0, err
	}
	entries, positions, err := readEntries(db, l.group, h.truncated)
	if err != nil {
		return 0, err
	}
	l.written = writeState{
		hard: h.hard, applied: h.applied, truncated: h.truncated,
		positions: positions, generation: h.generation, generations: h.generation,
	}
	if err := l.written.verify(); err != nil {
		return 0, err
	}
	l.memStorage = memStorage{
		hard: withCommit(h.hard, h.applied.Index), conf: h.conf, applied: h.applied,
		truncated: h.truncated, entries: entries, bytes: size(entries),
	}
	return h.synced, nil
}
