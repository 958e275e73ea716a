package storage

import (
	"errors"
	"fmt"
)

// OnClose registers fn to run on Close, after all submitted work and before the
// database closes. It must be called before Close.
func (s *Store) OnClose(fn func() error) { s.onClose = append(s.onClose, fn) }

// Close runs the work submitted before, closes the database and unlocks the
// directory. It is idempotent. It blocks until everything pinned is unpinned. It does not
// wait for what the process lacks: a shortage is a failure from now on.
//
// After a failure, Close returns that failure and does not wait for Pebble,
// which may hang on a parked goroutine. It waits only for the file operations
// under way; once it has returned, the directory may be opened again in this
// process. Pebble shuts down in the background, on files that discard
// writes or are in memory.
func (s *Store) Close() error {
	if s.closing.CompareAndSwap(false, true) {
		defer close(s.closed)
		s.closeErr = s.close()
	} else {
		<-s.closed
	}
	return s.closeErr
}

func (s *Store) close() error {
	defer s.patience.release()
	s.patience.close()
	s.queue.close()
	s.pins.close()
	closed := make(chan error, 1)
	go func() { closed <- s.closeDatabase() }()
	select {
	case err := <-closed:
		return errors.Join(s.failstop.error(), err, s.dir.lock.Close())
	case <-s.failstop.failed:
		// In this order: no file changes once the directory is unlocked.
		s.failstop.drain()
		err := errors.Join(s.failstop.error(), s.dir.lock.Close())
		s.failstop.resume()
		return err
	}
}

// closeDatabase closes what the store has opened, once it is unused. A function that
// panics, as Pebble may after a failure, keeps nothing else open.
func (s *Store) closeDatabase() (err error) {
	<-s.stopped
	s.pins.wait()
	for _, fn := range s.onClose {
		err = errors.Join(err, s.recovering(fn))
	}
	if s.db == nil {
		return err
	}
	return errors.Join(err, s.recovering(s.db.Close))
}

func (s *Store) recovering(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("close the database in %s: panic: %v", s.dir.path, p)
		}
	}()
	return fn()
}
