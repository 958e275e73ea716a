package cluster

import (
	"sync"

	"github.com/conclave-go/conclave/cluster/core"
)

// mailbox queues events of this process for the loop. Posting never blocks, so that the
// loop's own callbacks may post. It is unbounded: callers wait for the outcome of their
// event, Submit refuses calls beyond MaxCalls, and each release or withdrawal follows
// a call that was within that limit.
type mailbox struct {
	signal signal // set while there is something to fetch

	mu     sync.Mutex
	events []event // guarded by mu
	closed bool    // guarded by mu
}

// event is run by the loop.
type event struct {
	run  func(*core.Core)
	lost func() // called instead if the loop has stopped; may be nil
}

func (b *mailbox) post(e event) {
	if b.put(e) || e.lost == nil {
		return
	}
	e.lost()
}

func (b *mailbox) put(e event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.events = append(b.events, e)
	if len(b.events) == 1 {
		b.signal.set()
	}
	return true
}

func (b *mailbox) fetch() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	b.events = nil
	return events
}

// close loses the events that are queued, and those that are posted afterwards.
func (b *mailbox) close() {
	b.mu.Lock()
	b.closed = true
	events := b.events
	b.events = nil
	b.mu.Unlock()
	lose(events)
}

// lose calls lost for each event.
func lose(events []event) {
	for _, e := range events {
		if e.lost != nil {
			e.lost()
		}
	}
}
