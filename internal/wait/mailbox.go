package wait

import "sync"

// Mailbox queues events for one goroutine, its loop. Posting never blocks, so that the loop's own callbacks may
// post. It has no bound: its users limit what is posted.
type Mailbox[E any] struct {
	ready Signal

	mu     sync.Mutex
	events []E  // guarded by mu
	closed bool // guarded by mu
}

// NewMailbox returns an empty mailbox.
func NewMailbox[E any]() *Mailbox[E] { return &Mailbox[E]{ready: NewSignal()} }

// Ready returns the signal that is set while there is something to fetch.
func (b *Mailbox[E]) Ready() Signal { return b.ready }

// Post queues an event, and returns false if the mailbox is closed.
func (b *Mailbox[E]) Post(e E) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.events = append(b.events, e)
	if len(b.events) == 1 {
		b.ready.Set()
	}
	return true
}

// Fetch returns what is queued, in order.
func (b *Mailbox[E]) Fetch() []E {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	b.events = nil
	return events
}

// Close returns what was queued and not fetched. What is posted afterwards is refused.
func (b *Mailbox[E]) Close() []E {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return b.Fetch()
}
