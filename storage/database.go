package storage

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// openDatabase opens Pebble, a new database twice: the first WAL of a database
// carries no sync offsets, so that damage to it would be undetectable; every
// later WAL does.
func (s *Store) openDatabase() (*pebble.DB, error) {
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
	lock, err := pebble.LockDirectory(s.dir.path, lockedFS{s.fs})
	if err != nil {
		return nil, err
	}
	options := &pebble.Options{
		FS:                          s.fs,
		Lock:                        lock,
		ErrorIfNotExists:            !create,
		ReadOnly:                    s.ReadOnly(),
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                s.options.MemTableSize,
		MemTableStopWritesThreshold: maxMemTables,
		L0StopWritesThreshold:       maxL0Sublevels,
		L0CompactionThreshold:       l0Compaction,
		CacheSize:                   8 << 20,
		MaxOpenFiles:                256,
		Logger:                      pebbleLogger{s.options.Logger, s.failstop},
		EventListener: &pebble.EventListener{
			BackgroundError: s.backgroundError,
			DataCorruption:  s.dataCorruption,
		},
	}
	options.Experimental.CompactionScheduler = newCompactions(s.failstop)
	return pebble.Open(s.dir.path, options)
}

// maxMemTables bounds the tables in memory, of MemTableSize each, beyond which a write
// waits for a flush. With Pebble's default of 2, each slow sync of a flush stalled the
// log while large entries were written, and every renewal with it.
const maxMemTables = 4

// maxL0Sublevels is out of reach, as in CockroachDB: a write must not wait for a compaction,
// for which it would wait for ever after a failure. Few reads touch the tables, since the
// state is in memory, so more sublevels cost little.
const maxL0Sublevels = 1000

// l0Compaction is twice Pebble's default, with which the tables of L0 are compacted once two overlap. Each compaction reads and writes what overlaps in the level
// below as well: with large values that took a fifth of the processor time, and the appends of all logs waited meanwhile. With this one four
// tables have to overlap, which take 64 MiB at most.
const l0Compaction = 8

// lockedFS satisfies Pebble's locking of a directory that the store has locked
// and will unlock itself.
type lockedFS struct{ vfs.FS }

func (lockedFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// backgroundError fails the store on a failed flush or compaction, which Pebble
// would retry forever. The cause is a read: Pebble sees no failed write.
func (s *Store) backgroundError(err error) {
	if pebble.IsCorruptionError(err) {
		err = fmt.Errorf("%w: %s: %w", ErrCorrupt, s.dir.path, err)
	}
	s.failstop.fail(err)
}

func (s *Store) dataCorruption(info pebble.DataCorruptionInfo) {
	s.failstop.fail(fmt.Errorf("%w: %s: %w", ErrCorrupt, info.Path, info.Details))
}

// pebbleLogger forwards Pebble's log to slog. Pebble relies on Fatalf not
// returning: it fails the store and parks the goroutine.
type pebbleLogger struct {
	log      *slog.Logger
	failstop *failstop
}

func (l pebbleLogger) Infof(format string, args ...any) {
	l.log.Debug("pebble", "detail", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("pebble", "detail", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.failstop.fail(fmt.Errorf("pebble: "+format, args...))
	<-l.failstop.resumed
}

// Space is what a database takes of its file system, and what that has left.
type Space struct {
	// Used is the size of the database's files, those included that are kept for reuse.
	Used uint64
	// Free is what the process may still write to the file system, as far as Known is set: a file system
	// in memory has no such number. A quota is not in it, unless the file system reports it so.
	Free  uint64
	Known bool
	// Needed is what the next logs and the next flush and compaction may take before they free
	// anything.
	Needed uint64
}

// Short reports whether the next logs, flush and compaction may find the disk full.
func (s Space) Short() bool { return s.Known && s.Free < s.Needed }

// Space returns what the database takes and may need. It may be called on any goroutine, and
// waits for the disk.
func (s *Store) Space() (Space, error) {
	db, unpin, err := s.Pin()
	if err != nil {
		return Space{}, err
	}
	defer unpin()
	m := db.Metrics()
	space := Space{Used: m.DiskSpaceUsage(), Needed: needed(m, s.options.MemTableSize)}
	if usage, err := s.fs.GetDiskUsage(s.dir.path); err == nil {
		space.Free, space.Known = usage.AvailBytes, true
	}
	return space, nil
}

// needed adds up what is written before anything is freed. A full table in memory is
// followed by the next one, with a log of its own, before it is flushed to a table on the disk; that
// flush may still be under way when the next one is full. A checkpoint goes through the same log and tables. A
// compaction of all tables, or a snapshot that replaces the state, writes as much as all tables have, and
// removes them afterwards. Logs that could be reused are not counted: the flushes may be behind.
func needed(m *pebble.Metrics, table uint64) uint64 {
	total := m.Total()
	log := table + table/10
	return 2*(log+table) + uint64(max(0, total.TablesSize))
}
