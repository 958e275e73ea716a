package storage

import (
	"errors"
	"sync"
)

// Close carries out what was handed in before, closes the database and gives
// the directory back. It is idempotent. Every loan has to be returned first.
//
// A failed store cannot be closed, because Pebble would wait for its parked
// goroutines: it is abandoned, with what it holds in memory. No file is touched
// once Close has returned, so the directory can be opened anew. Close returns
// the failure then.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	s.queue.close()
	s.loans.close()
	closed := make(chan error, 1)
	go func() {
		<-s.stopped
		s.loans.wait()
		closed <- s.closeDatabase()
	}()
	select {
	case err := <-closed:
		return errors.Join(s.guard.error(), err, s.dir.lock.Close())
	case <-s.guard.failed:
		s.guard.settle()
		return errors.Join(s.guard.error(), s.dir.lock.Close())
	}
}

func (s *Store) closeDatabase() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
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
