package raftlog

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/storage"
)

// Open reads and checks the log of a group; a group without records has an empty
// log. The log is closed with the store.
//
// Damage, and the loss of acknowledged entries, is storage.ErrCorrupt; a format
// of a newer version is storage.ErrNewer.
func Open(store *storage.Store, number uint32) (*Log, error) {
	l := &Log{store: store, group: group(number)}
	err := store.Do(l.open)
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

func (l *Log) open(db *pebble.DB) error {
	h, err := readHeader(db, l.group)
	if err != nil {
		return err
	}
	entries, positions, err := readEntries(db, l.group, h.truncated)
	if err != nil {
		return err
	}
	l.written = writeState{
		hard: h.hard, applied: h.applied, truncated: h.truncated,
		positions: positions, generation: h.generation, generations: h.generation, synced: h.synced,
	}
	if err := l.written.verify(); err != nil {
		return err
	}
	if err := l.openWatermark(); err != nil {
		return err
	}
	l.memStorage = memStorage{
		hard: withCommit(h.hard, h.applied.Index), conf: h.conf, applied: h.applied,
		truncated: h.truncated, entries: entries, bytes: size(entries),
	}
	if l.store.ReadOnly() {
		l.written.failed = errors.New("the raft log was opened to be read only")
		return nil
	}
	return l.removeUnusedGenerations(db)
}

func (l *Log) openWatermark() error {
	fsys, dir := l.store.FS(), l.store.Dir()
	name := "WATERMARK"
	if l.group != 0 {
		name = fmt.Sprintf("WATERMARK-%d", l.group)
	}
	path := fsys.PathJoin(dir, name)
	if l.store.ReadOnly() {
		return l.checkWatermark(fsys, path)
	}
	w, found, err := openWatermark(fsys, path)
	if err != nil {
		return err
	}
	switch {
	case found:
		err = w.verify(l.written.synced)
	case l.written.synced == 0: // nothing was acknowledged yet
		err = w.create(fsys, dir)
	default:
		err = noWatermark(path)
	}
	if err != nil {
		return errors.Join(err, w.file.Close())
	}
	l.written.watermark = w
	l.store.OnClose(w.close)
	return nil
}

// checkWatermark is openWatermark for a log that is only read.
func (l *Log) checkWatermark(fsys vfs.FS, path string) error {
	w, found, err := readWatermark(fsys, path)
	switch {
	case err != nil:
		return err
	case found:
		return w.verify(l.written.synced)
	case l.written.synced == 0:
		return nil
	}
	return noWatermark(path)
}

func noWatermark(path string) error {
	return corruptf("watermark %s is missing or unreadable, so this member may have lost acknowledged entries and must not vote", path)
}
