package queue

import "time"

// gathering is the time in which items of PushLater wait for others. It is used with the mutex of its queue.
type gathering struct {
	timer   *time.Timer // nil: PushLater has not been called
	running bool
}

func (g *gathering) stop() {
	if g.running {
		g.running = false
		g.timer.Stop()
	}
}

// PushLater is Push, but the item may stay in the queue for so long, so that other items share its write. Items that Push queues end
// the wait, and a queue that is half full.
func (q *Queue[T]) PushLater(number uint32, item T, size int, limit time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hasRoom(number, size) {
		return false
	}
	q.put(number, item, size)
	switch g := &q.gather; {
	case !q.queued.within(0, q.maxItems/2, q.maxBytes/2):
		q.signal()
	case g.running:
	case g.timer == nil:
		g.timer, g.running = time.AfterFunc(limit, q.gathered), true
	default:
		g.running = true
		g.timer.Reset(limit)
	}
	return true
}

// gathered runs when an item of PushLater has waited for as long as it may.
func (q *Queue[T]) gathered() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gather.running {
		q.gather.running = false
		q.signal()
	}
}
