package storage

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/pprof"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options say where and how a store keeps its bytes. The zero value is a store
// in memory.
type Options struct {
	Dir          string       // default "": in memory, gone with the store
	FS           vfs.FS       // default: the operating system's, or memory without Dir
	Logger       *slog.Logger // default: silent
	MemTableSize uint64       // default 4 MiB
	// Inline runs every operation on the caller's goroutine, and after a
	// failure drops writes instead of parking: for a simulator that has one
	// goroutine only.
	Inline bool
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
		if o.Dir == "" {
			o.FS = vfs.NewMem()
		}
	}
	o.Dir = cmp.Or(o.Dir, "/conclave")
	o.MemTableSize = cmp.Or(o.MemTableSize, 4<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Store is an open database and the goroutine that writes to it.
type Store struct {
	options Options
	dir     *directory
	fs      *guardFS
	guard   *guard
	queue   *queue
	loans   *loans
	stopped chan struct{} // closed when the storage goroutine has ended

	db      *pebble.DB // set before Open returns, then read only
	onClose []func() error

	closing  sync.Once
	closeErr error
}

// Open opens the data directory, creating it where it is missing. A directory
// that is in use (ErrInUse), damaged (ErrCorrupt), of a newer version
// (ErrNewer) or of something else (ErrForeign) is refused.
func Open(options Options) (*Store, error) {
	options = options.withDefaults()
	dir, err := openDirectory(options.FS, options.Dir)
	if err != nil {
		return nil, err
	}
	g := newGuard()
	s := &Store{
		options: options,
		dir:     dir,
		fs:      &guardFS{FS: options.FS, guard: g},
		guard:   g,
		queue:   newQueue(),
		loans:   newLoans(),
		stopped: make(chan struct{}),
	}
	if options.Inline {
		g.release()
		close(s.stopped)
	} else {
		go s.run()
	}
	if err := s.Do(s.start); err != nil {
		_ = s.Close() // err says what is wrong
		return nil, err
	}
	return s, nil
}

// start opens the database, on the storage goroutine: where a write fails in
// the middle, the goroutine is parked and Open returns the guard's error.
func (s *Store) start(*pebble.DB) error {
	db, err := s.database()
	if err != nil {
		return openError(s.dir.path, err)
	}
	s.db = db
	return nil
}

// run is the storage goroutine.
func (s *Store) run() {
	defer close(s.stopped)
	pprof.Do(context.Background(), pprof.Labels("conclave", "storage"), func(context.Context) {
		for tasks := s.queue.take(); tasks != nil; tasks = s.queue.take() {
			for _, task := range tasks {
				task()
			}
		}
	})
}
