package queue

import (
	"context"
	"slices"
)

// waiter is an item that waits for room in a queue.
type waiter[T any] struct {
	sized[T]
	admitted chan struct{} // closed when the item is in the queue
}

// PushWait is Push to flow 0, but blocks until the queue has room for the item in a quarter of its
// bytes, or is empty. Items that wait are admitted in their order. It returns false if ctx
// or closed ends first, and the item is then not in the queue.
func (q *Queue[T]) PushWait(ctx context.Context, closed <-chan struct{}, item T, size int) bool {
	w := &waiter[T]{sized[T]{item, size}, make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, w)
	q.admitWaiting()
	q.mu.Unlock()
	select {
	case <-w.admitted:
		return true
	case <-ctx.Done():
	case <-closed:
	}
	return !q.leave(w)
}

// leave reports whether the waiter was still waiting.
func (q *Queue[T]) leave(w *waiter[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, w)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.admitWaiting() // the next one may be smaller
	return true
}

// admitWaiting is called with mu held.
func (q *Queue[T]) admitWaiting() {
	for len(q.waiting) > 0 {
		w := q.waiting[0]
		held := q.queued.bytes + q.writeBytes
		if !q.hasRoom(0, w.size) || held > 0 && held+w.size > q.maxBytes/4 {
			return
		}
		q.waiting[0] = nil
		if q.waiting = q.waiting[1:]; len(q.waiting) == 0 {
			q.waiting = nil // frees the array
		}
		q.put(0, w.item, w.size)
		q.signal()
		close(w.admitted)
	}
}
