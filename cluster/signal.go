package cluster

import "sync"

// signal wakes one goroutine: it holds at most one token, from set to its receipt.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// longLock is a lock that may be held over what waits: a write to the disk, another goroutine.
// Its callers wait for a channel, which a bubble knows for a wait, unlike that for a mutex.
type longLock struct {
	mu    sync.Mutex
	held  bool          // guarded by mu
	freed chan struct{} // guarded by mu; closed by the next release
}

func (l *longLock) acquire() {
	for {
		freed := l.tryAcquire()
		if freed == nil {
			return
		}
		<-freed
	}
}

// tryAcquire returns nil if it has acquired the lock, or else what the next release closes.
func (l *longLock) tryAcquire() (freed <-chan struct{}) {
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

func (l *longLock) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// broadcast wakes every goroutine that waits.
type broadcast struct {
	mu   sync.Mutex
	next chan struct{} // guarded by mu; closed by the next set
}

// wait returns a channel that the next set closes. What is waited for must be checked after
// the call.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *broadcast) set() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
