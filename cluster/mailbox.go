package cluster

import (
	"sync"

	"github.com/conclave-go/conclave/cluster/core"
)

// mailbox brings events of this process to the loop. Posting never blocks, so that the
// loop's own callbacks may post. It has no bound of its own: callers wait for what they
// post, the loop refuses calls beyond the limit, and a release or withdrawal belongs to
// a call that was within it.
type mailbox struct {
	signal signal // set while there is something to fetch

	mu     sync.Mutex
	events []event // guarded by mu
	closed bool    // guarded by mu
}

// event is something for the loop to do.
type event struct {
	run  func(*core.Core)
	lost func() // called instead when the loop has ended; may be nil
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

// close ends the loop's side: nothing is fetched any more.
func (b *mailbox) close() {
	b.mu.Lock()
	b.closed = true
	events := b.events
	b.events = nil
	b.mu.Unlock()
	lose(events)
}

// lose calls lost for events that the loop will not run.
func lose(events []event) {
	for _, e := range events {
		if e.lost != nil {
			e.lost()
		}
	}
}
