package storage

import (
	"fmt"
	"runtime/debug"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Do runs fn on the storage goroutine, after everything handed in before, and
// waits for it. When the store fails meanwhile it returns that error without
// waiting: then nothing that fn writes to may be looked at. Do must not be
// called on the storage goroutine.
func (s *Store) Do(fn func(*pebble.DB) error) error {
	result := make(chan error, 1)
	if !s.submit(fn, func(err error) { result <- err }) {
		return ErrClosed
	}
	select {
	case err := <-result:
		return err
	case <-s.guard.failed:
		return s.guard.error()
	}
}

// Go runs fn on the storage goroutine, after everything handed in before, and
// then, there too, done with its result; done must not block. Once the store
// has failed or was closed, neither is called any more: the node is stopping,
// and Failed tells why.
func (s *Store) Go(fn func(*pebble.DB) error, done func(error)) {
	s.submit(fn, done)
}

func (s *Store) submit(fn func(*pebble.DB) error, done func(error)) bool {
	task := func() { s.execute(fn, done) }
	if !s.options.Inline {
		return s.queue.put(task)
	}
	if s.queue.isClosed() {
		return false
	}
	task()
	return true
}

// execute carries out one piece of work. Its result is passed on only while
// the guard stands: after a failure even a success is not to be trusted.
func (s *Store) execute(fn func(*pebble.DB) error, done func(error)) {
	defer func() {
		if p := recover(); p != nil {
			s.guard.fail(fmt.Errorf("panic in the storage: %v\n%s", p, debug.Stack()))
		}
	}()
	if s.guard.error() != nil {
		return
	}
	err := fn(s.db)
	if s.guard.error() != nil {
		return
	}
	done(err)
}

// Failed is closed when the store has failed. From then on nothing is
// acknowledged any more; Err says why, and all that is left is to Close.
func (s *Store) Failed() <-chan struct{} { return s.guard.failed }

// Err returns why the store failed, naming the operation and the file, or nil.
func (s *Store) Err() error { return s.guard.error() }

// FS is the guarded file system, for files beside the database. Only the
// storage goroutine may write through it, because a failed write parks.
func (s *Store) FS() vfs.FS { return s.fs }

// Dir is the data directory.
func (s *Store) Dir() string { return s.dir.path }

// Borrow lends the database for reading on any goroutine, also the storage
// goroutine. Close waits until it is given back.
func (s *Store) Borrow() (db *pebble.DB, giveBack func(), err error) {
	if !s.loans.take() {
		return nil, nil, ErrClosed
	}
	return s.db, s.loans.giveBack, nil
}
