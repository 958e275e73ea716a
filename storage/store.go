package storage

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/pprof"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options configures a Store. The zero value is a store in memory.
type Options struct {
	Dir          string       // default "": in memory, lost on Close
	FS           vfs.FS       // default: the operating system's, or memory without Dir
	Logger       *slog.Logger // default: discards
	MemTableSize uint64       // in bytes; default 16 MiB, without Dir 4 MiB
	Access       Access       // default: open or create
	// GiveUp ends, when it is closed, the waiting for file descriptors and memory that the
	// process lacks: from then on a shortage is a failure. nil: it ends with Close.
	GiveUp <-chan struct{}
	// Inline runs all work on the caller's goroutine and, after a failure,
	// discards writes instead of parking: for a single-threaded simulator.
	Inline bool
}

// Access is how a store is opened.
type Access int

const (
	// OpenOrCreate opens the directory, and creates it where it is missing.
	OpenOrCreate Access = iota
	// OpenExisting opens a directory that has a database, and creates nothing.
	OpenExisting
	// ReadOnly is OpenExisting without a change of any file but the lock.
	ReadOnly
	// Fill creates a database in a directory that must be empty, or that an earlier Fill
	// has left unfinished. Until Store.Finish every other access refuses it.
	Fill
)

func (o Options) withDefaults() Options {
	var disk vfs.FS = newPrivateFS()
	memTable := uint64(16 << 20)
	if o.Dir == "" { // the log of a table takes as much memory again
		disk, memTable = vfs.NewMem(), 4<<20
	}
	if o.FS == nil {
		o.FS = disk
	}
	o.Dir = cmp.Or(o.Dir, "/conclave")
	o.MemTableSize = cmp.Or(o.MemTableSize, memTable)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Store is an open database and the storage goroutine, which is the only one
// that writes to it. Its methods may be called from any goroutine.
type Store struct {
	options  Options
	dir      *directory
	fs       *failstopFS
	failstop *failstop
	patience *patience
	queue    *queue
	pins     pins
	stopped  chan struct{} // closed when the storage goroutine has returned

	gathering bool     // owned by the only goroutine that there is with Options.Inline
	gathered  []func() // likewise

	db      *pebble.DB // set before Open returns, then read-only
	onClose []func() error

	closing  atomic.Bool   // a call of Close has begun
	closed   chan struct{} // closed when that call is done
	closeErr error         // set before closed is closed
}

// Open opens the data directory and creates it where it is missing. It refuses
// a directory that is in use (ErrInUse), damaged (ErrCorrupt), of a newer
// version (ErrNewer), of another program (ErrForeign) or unfinished (ErrUnfinished),
// and leaves it as it is. Other kinds of access create nothing, or fill it.
func Open(options Options) (*Store, error) {
	options = options.withDefaults()
	f := newFailstop()
	patient := &patientFS{options.FS, newPatience(options, f.failed)}
	dir, err := openDirectory(patient, options)
	if err != nil {
		patient.patience.release()
		return nil, err
	}
	s := &Store{
		options:  options,
		dir:      dir,
		fs:       newFailstopFS(patient, dir.lock, f),
		failstop: f,
		patience: patient.patience,
		queue:    newQueue(),
		stopped:  make(chan struct{}),
		closed:   make(chan struct{}),
	}
	if options.Inline {
		f.resume()
		close(s.stopped)
	} else {
		go s.loop()
	}
	if err := s.Do(s.open); err != nil {
		_ = s.Close() // err is the cause
		return nil, err
	}
	return s, nil
}

// open opens the database on the storage goroutine: a failed write parks that
// goroutine, and Open returns the failure.
func (s *Store) open(*pebble.DB) error {
	db, err := s.openDatabase()
	if err != nil {
		return openError(s.dir.path, err)
	}
	s.db = db
	return nil
}

// loop is the storage goroutine.
func (s *Store) loop() {
	defer close(s.stopped)
	pprof.Do(context.Background(), pprof.Labels("conclave", "storage"), func(context.Context) {
		for tasks := s.queue.take(); tasks != nil; tasks = s.queue.take() {
			for _, task := range tasks {
				task()
			}
		}
	})
}

// Failed returns a channel that is closed when the store has failed. From then
// on nothing is acknowledged, and only Close is useful.
func (s *Store) Failed() <-chan struct{} { return s.failstop.failed }

// Err returns the failure of the store, with operation and file, or nil.
func (s *Store) Err() error { return s.failstop.error() }

// FS returns the fail-stop file system, for files beside the database. Only the
// storage goroutine may write to it, since a failed write parks the goroutine.
func (s *Store) FS() vfs.FS { return s.fs }

// ReadOnly reports whether the store was opened to be read only.
func (s *Store) ReadOnly() bool { return s.options.Access == ReadOnly }

// Inline reports whether all work runs on the caller's goroutine.
func (s *Store) Inline() bool { return s.options.Inline }

// Dir returns the path of the data directory.
func (s *Store) Dir() string { return s.dir.path }
