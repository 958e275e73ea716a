package storage

import "sync"

// queue is a FIFO of tasks without a bound of its own. Its producers bound it:
// the loop has one batch in flight, each caller of Do one call, and tasks whose
// result is not awaited come one for each change of a member's address.
type queue struct {
	mu     sync.Mutex // protects the fields below
	tasks  []func()
	closed bool
	wake   *sync.Cond // tasks or closed has changed
}

func newQueue() *queue {
	q := new(queue)
	q.wake = sync.NewCond(&q.mu)
	return q
}

// put appends a task. It returns false, and drops the task, when the queue is
// closed.
func (q *queue) put(task func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.tasks = append(q.tasks, task)
	q.wake.Signal()
	return true
}

// take blocks until there are tasks and returns all of them, or nil once the
// queue is closed and empty.
func (q *queue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.tasks) == 0 && !q.closed {
		q.wake.Wait()
	}
	tasks := q.tasks
	q.tasks = nil
	return tasks
}

// close makes put fail. Tasks in the queue can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}
