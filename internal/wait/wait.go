// Package wait is how a goroutine waits for another one: by channels, so that in a testing/synctest bubble it lets
// virtual time pass.
package wait

import "sync"

// Signal wakes one goroutine: it holds at most one token, from set to its receipt.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes the goroutine that waits for s, or the next one that does.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Lock is a lock that may be held over what waits: a write to the disk, another goroutine.
// Its callers wait for a channel, which a bubble knows for a wait, unlike that for a mutex.
type Lock struct {
	mu    sync.Mutex
	held  bool          // guarded by mu
	freed chan struct{} // guarded by mu; closed by the next release
}

// Acquire blocks until the lock is free, and acquires it.
func (l *Lock) Acquire() {
	for {
		freed := l.tryAcquire()
		if freed == nil {
			return
		}
		<-freed
	}
}

// tryAcquire returns nil if it has acquired the lock, or else what the next release closes.
func (l *Lock) tryAcquire() (freed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		l.held = true
		return nil
	}
	if l.freed == nil {
		l.freed = make(chan struct{})
	}
	return l.freed
}

// Release releases the lock.
func (l *Lock) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// Broadcast wakes every goroutine that waits.
type Broadcast struct {
	mu   sync.Mutex
	next chan struct{} // guarded by mu; closed by the next set
}

// Wait returns a channel that the next set closes. What is waited for must be checked after
// the call.
func (b *Broadcast) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Set wakes every goroutine that waits.
func (b *Broadcast) Set() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
