// Package queue is a bounded queue of what one connection sends. It is a seam, not an API: only package transport uses it.
package queue

import "sync"

// Queue is a bounded queue between callers that must not block and one writer. It has
// two lanes: bulk items are written when nothing else is queued, and may fill half of
// the queue. Items count against the bounds until they are written, so that the bounds
// are those of the memory in use.
type Queue[T any] struct {
	maxItems, maxBytes int
	Ready              chan struct{} // holds a token while items are queued

	mu                  sync.Mutex // guards what follows
	accepting           bool
	items               []T
	bulk                []sized[T]
	bytes               int // of items, bulk, and those being written
	bulkBytes           int // of bulk
	writing, writeBytes int // being written
	waiting             []*waiter[T]
}

type sized[T any] struct {
	item T
	size int
}

// New returns a queue that accepts nothing before Reset.
func New[T any](maxItems, maxBytes int) *Queue[T] {
	return &Queue[T]{maxItems: maxItems, maxBytes: maxBytes, Ready: make(chan struct{}, 1)}
}

// Reset empties the queue and sets whether it accepts items from now on.
func (q *Queue[T]) Reset(accept bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.accepting = accept
	q.items, q.bytes, q.writing, q.writeBytes = nil, 0, 0, 0
	q.bulk, q.bulkBytes = nil, 0
	select {
	case <-q.Ready:
	default:
	}
}

// Push never blocks. It returns false if the queue is full or does not accept.
func (q *Queue[T]) Push(item T, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hasRoom(size) {
		return false
	}
	q.items = append(q.items, item)
	q.bytes += size
	q.signal()
	return true
}

// PushBulk is Push for the bulk lane.
func (q *Queue[T]) PushBulk(item T, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hasRoom(size) || len(q.bulk) >= q.maxItems/2 || q.bulkBytes+size > q.maxBytes/2 {
		return false
	}
	q.bulk = append(q.bulk, sized[T]{item, size})
	q.bulkBytes += size
	q.bytes += size
	q.signal()
	return true
}

func (q *Queue[T]) hasRoom(size int) bool {
	return q.accepting && len(q.items)+len(q.bulk)+q.writing < q.maxItems && q.bytes+size <= q.maxBytes
}

func (q *Queue[T]) signal() {
	select {
	case q.Ready <- struct{}{}:
	default:
	}
}

// Take returns items for writing: every one that is not bulk, and otherwise bulk of up to limit
// bytes, or a little more.
func (q *Queue[T]) Take(limit int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items, q.writeBytes = nil, q.bytes-q.bulkBytes
	if len(items) == 0 {
		for len(q.bulk) > 0 && q.writeBytes < limit {
			first := q.bulk[0]
			q.bulk[0] = sized[T]{}
			q.bulk = q.bulk[1:]
			items = append(items, first.item)
			q.bulkBytes -= first.size
			q.writeBytes += first.size
		}
	}
	q.writing = len(items)
	if len(q.bulk) == 0 {
		q.bulk = nil // frees the array
	} else {
		q.signal()
	}
	return items
}

// Written releases the room of what Take returned, and returns its bytes.
func (q *Queue[T]) Written() (bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes = q.writeBytes
	q.bytes -= bytes
	q.writing, q.writeBytes = 0, 0
	q.admitWaiting()
	return bytes
}

// MaxBytes returns the bound of its bytes.
func (q *Queue[T]) MaxBytes() int { return q.maxBytes }

// Len returns how many items are queued, bulk apart, and the bytes of all, those being written
// included.
func (q *Queue[T]) Len() (items, bulk, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items), len(q.bulk), q.bytes
}
