package main

import (
	"sync"

	"github.com/conclave-go/conclave"
)

// ledger is what the lock protects: elsewhere a database, a file store, a
// printer. It does not trust that only the holder comes. It looks at the fence.
type ledger struct {
	mu      sync.Mutex // check and write are one step
	guard   conclave.Guard
	entries []string
}

// book writes an entry for a holder of the lock, unless a later holder has been
// here.
func (l *ledger) book(lock string, f conclave.Fence, entry string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.guard.Check(lock, f); err != nil {
		return err
	}
	l.entries = append(l.entries, entry)
	return nil
}
