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
