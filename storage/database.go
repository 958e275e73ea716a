package storage

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// database opens Pebble; a new database it opens twice. The first write-ahead
// log of one carries no sync offsets, so that damage to it would pass unseen;
// each later one does.
func (s *Store) database() (*pebble.DB, error) {
	if s.dir.fresh {
		db, err := s.openPebble(true)
		if err != nil {
			return nil, err
		}
		if err := db.Close(); err != nil {
			return nil, err
		}
		if err := s.dir.establish(s.fs); err != nil {
			return nil, err
		}
	}
	return s.openPebble(false)
}

func (s *Store) openPebble(create bool) (*pebble.DB, error) {
	// Pebble wants to lock the directory itself: it is given the lock we have.
	lock, err := pebble.LockDirectory(s.dir.path, lockedFS{s.fs})
	if err != nil {
		return nil, err
	}
	return pebble.Open(s.dir.path, &pebble.Options{
		FS:                 s.fs,
		Lock:               lock,
		ErrorIfNotExists:   !create,
		FormatMajorVersion: pebble.FormatNewest,
		MemTableSize:       s.options.MemTableSize,
		CacheSize:          8 << 20,
		MaxOpenFiles:       256,
		Logger:             pebbleLogger{s.options.Logger, s.guard},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { s.background(err) },
			DataCorruption:  func(info pebble.DataCorruptionInfo) { s.guard.fail(corruption(info)) },
		},
	})
}

// lockedFS locks what the store has locked already, and leaves it to the store
// to give the lock back.
type lockedFS struct{ vfs.FS }

func (lockedFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// background answers a failed flush or compaction. Writes that fail never get
// here, so it was a read; Pebble would try again for ever.
func (s *Store) background(err error) {
	if pebble.IsCorruptionError(err) {
		err = fmt.Errorf("%w: %s: %w", ErrCorrupt, s.dir.path, err)
	}
	s.guard.fail(err)
}

func corruption(info pebble.DataCorruptionInfo) error {
	return fmt.Errorf("%w: %s: %w", ErrCorrupt, info.Path, info.Details)
}

// pebbleLogger passes Pebble's words on to slog. Pebble expects Fatalf not to
// return: here it fails the store and parks.
type pebbleLogger struct {
	log   *slog.Logger
	guard *guard
}

func (l pebbleLogger) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

func (l pebbleLogger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.guard.fail(fmt.Errorf("pebble: "+format, args...))
	<-l.guard.released
}
