package storage

import "sync"

// queue is an unbounded first-in-first-out of work. What bounds it is what its
// producers let be in flight: the loop one batch, whoever calls Do one call, and
// notes that nobody waits for are one for each change of an address.
type queue struct {
	mu     sync.Mutex // guards what follows
	tasks  []func()
	closed bool
	wake   *sync.Cond // tasks or closed has changed
}

func newQueue() *queue {
	q := new(queue)
	q.wake = sync.NewCond(&q.mu)
	return q
}

// put appends a task; false: the queue is closed and the task dropped.
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

// take waits for tasks and returns all there are, or nil once the queue is
// closed and empty.
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

// close refuses further tasks; those that are there can still be taken.
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
