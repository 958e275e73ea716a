package storage

import (
	"fmt"
	"runtime/debug"

	"github.com/cockroachdb/pebble/v2"
)

// Do runs fn on the storage goroutine, after all work submitted before, and
// returns its error. When the store fails meanwhile, Do returns that failure
// without waiting for fn, and the caller must not access what fn writes to. Do
// must not be called on the storage goroutine.
func (s *Store) Do(fn func(*pebble.DB) error) error {
	result := make(chan error, 1)
	if !s.submit(fn, func(err error) { result <- err }) {
		return ErrClosed
	}
	select {
	case err := <-result:
		return err
	case <-s.failstop.failed:
		return s.failstop.error()
	}
}

// Go submits fn to the storage goroutine, which runs it after all work submitted
// before and then calls done with its error; done must not block. Once the store
// is closed or has failed, neither is called: watch Failed.
func (s *Store) Go(fn func(*pebble.DB) error, done func(error)) {
	if s.gathering {
		s.gathered = append(s.gathered, func() { s.run(fn, done) })
		return
	}
	s.submit(fn, done)
}

// Gather calls submit and returns the work that it submits by Go, which the caller runs in order: as if all of that had been submitted while the
// storage goroutine was busy. Only with Options.Inline.
func (s *Store) Gather(submit func()) []func() {
	s.gathering = true
	submit()
	tasks := s.gathered
	s.gathering, s.gathered = false, nil
	return tasks
}

func (s *Store) submit(fn func(*pebble.DB) error, done func(error)) bool {
	task := func() { s.run(fn, done) }
	if !s.options.Inline {
		return s.queue.put(task)
	}
	if s.queue.isClosed() {
		return false
	}
	task()
	return true
}

// run runs one task. It reports the result only while the store has not failed:
// after a failure even a success may rest on a discarded write.
func (s *Store) run(fn func(*pebble.DB) error, done func(error)) {
	defer func() {
		if p := recover(); p != nil {
			s.failstop.fail(fmt.Errorf("storage task: panic: %v\n%s", p, debug.Stack()))
		}
	}()
	if s.failstop.error() != nil {
		return
	}
	err := fn(s.db)
	if s.failstop.error() != nil {
		return
	}
	done(err)
}
