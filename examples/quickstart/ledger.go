package main

import (
	"sync"

	"github.com/conclave-go/conclave"
)

// ledger is the resource that the lock protects: in a program, a database or a
// file store. It does not trust a caller to hold the lock; it checks the fence.
type ledger struct {
	mu      sync.Mutex // makes check and write one step
	guard   conclave.Guard
	entries []string
}

// book writes an entry for a holder of the lock, or returns ErrStaleFence if a
// later holder has written before.
func (l *ledger) book(lock string, f conclave.Fence, entry string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.guard.Check(lock, f); err != nil {
		return err
	}
	l.entries = append(l.entries, entry)
	return nil
}
