package remote

import "sync"

// mailbox queues what the loop is to run.
type mailbox struct {
	signal chan struct{}

	mu     sync.Mutex
	queue  []func() // guarded by mu
	closed bool     // guarded by mu
}

// post returns false if the loop has ended.
func (b *mailbox) post(run func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.queue = append(b.queue, run)
	select {
	case b.signal <- struct{}{}:
	default:
	}
	return true
}

func (b *mailbox) fetch() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.queue
	b.queue = nil
	return queue
}

func (b *mailbox) close() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.queue
}
