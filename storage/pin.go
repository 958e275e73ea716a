package storage

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// Pin returns the database for reading on any goroutine, the storage goroutine
// included. Close blocks until unpin has been called, once for each Pin.
func (s *Store) Pin() (db *pebble.DB, unpin func(), err error) {
	if !s.pins.add() {
		return nil, nil, ErrClosed
	}
	return s.db, s.pins.count.Done, nil
}

// pins counts the current users of the database.
type pins struct {
	count sync.WaitGroup

	mu     sync.Mutex // protects the fields below
	closed bool
}

// add returns false when the store is closed. No add succeeds after close, so
// none races with wait.
func (p *pins) add() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.count.Add(1)
	return true
}

func (p *pins) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

func (p *pins) wait() { p.count.Wait() }
