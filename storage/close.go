package storage

import (
	"errors"
	"fmt"
	"sync"
)

// OnClose has fn called when the store closes, after all work and before the
// database goes, for what lies beside it. It must be called before Close.
func (s *Store) OnClose(fn func() error) { s.onClose = append(s.onClose, fn) }

// Close carries out what was handed in before, closes the database and gives
// the directory back. It is idempotent. What is borrowed has to come back first.
//
// When the store has failed, Close does not wait for Pebble, which may hang on
// a parked goroutine. It waits until no file is touched any more, gives the
// directory back, so that it can be opened anew in this process, and only then
// wakes what is parked: Pebble ends in the background, on files that ignore it.
// Close returns the failure then.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	s.queue.close()
	s.loans.close()
	closed := make(chan error, 1)
	go func() { closed <- s.closeDatabase() }()
	select {
	case err := <-closed:
		return errors.Join(s.guard.error(), err, s.dir.lock.Close())
	case <-s.guard.failed:
		s.guard.settle()
		err := errors.Join(s.guard.error(), s.dir.lock.Close())
		s.guard.release()
		return err
	}
}

// closeDatabase ends what the store has opened, once nobody uses it.
func (s *Store) closeDatabase() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in the storage: %v", p)
		}
	}()
	<-s.stopped
	s.loans.wait()
	for _, fn := range s.onClose {
		err = errors.Join(err, fn())
	}
	if s.db == nil {
		return err
	}
	return errors.Join(err, s.db.Close())
}

// loans counts who reads from the database at the moment.
type loans struct {
	mu     sync.Mutex // guards what follows
	out    int
	closed bool
	back   *sync.Cond // out has become 0
}

func newLoans() *loans {
	l := new(loans)
	l.back = sync.NewCond(&l.mu)
	return l
}

func (l *loans) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.out++
	return true
}

func (l *loans) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out--
	if l.out == 0 {
		l.back.Broadcast()
	}
}

func (l *loans) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *loans) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.out > 0 {
		l.back.Wait()
	}
}
