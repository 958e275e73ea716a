package transport

import "sync"

// queue is a bounded queue between callers that must not block and one writer. It has
// two lanes: bulk items are written when nothing else is queued, and may fill half of
// the queue. Items count against the bounds until they are written, so that the bounds
// are those of the memory in use.
type queue[T any] struct {
	maxItems, maxBytes int
	ready              chan struct{} // holds a token while items are queued

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

func newQueue[T any](maxItems, maxBytes int) *queue[T] {
	return &queue[T]{maxItems: maxItems, maxBytes: maxBytes, ready: make(chan struct{}, 1)}
}

// reset empties the queue and sets whether it accepts items from now on.
func (q *queue[T]) reset(accept bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.accepting = accept
	q.items, q.bytes, q.writing, q.writeBytes = nil, 0, 0, 0
	q.bulk, q.bulkBytes = nil, 0
	select {
	case <-q.ready:
	default:
	}
}

// push never blocks. It returns false if the queue is full or does not accept.
func (q *queue[T]) push(item T, size int) bool {
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

// pushBulk is push for the bulk lane.
func (q *queue[T]) pushBulk(item T, size int) bool {
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

func (q *queue[T]) hasRoom(size int) bool {
	return q.accepting && len(q.items)+len(q.bulk)+q.writing < q.maxItems && q.bytes+size <= q.maxBytes
}

func (q *queue[T]) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take returns items for writing: every one that is not bulk, and otherwise bulk for
// one write.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items, q.writeBytes = nil, q.bytes-q.bulkBytes
	if len(items) == 0 {
		for len(q.bulk) > 0 && q.writeBytes < maxWrite {
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

// written releases the room of what take returned, and returns its bytes.
func (q *queue[T]) written() (bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes = q.writeBytes
	q.bytes -= bytes
	q.writing, q.writeBytes = 0, 0
	q.admitWaiting()
	return bytes
}

// writeQueue writes everything queued, with as few writes as possible. It returns the bytes that
// the queue no longer has.
func writeQueue[T any](s *stream, q *queue[T], encode func([]byte, T) ([]byte, error)) (bytes int, err error) {
	items := q.take()
	err = writeItems(s, items, encode)
	return q.written(), err
}

func writeItems[T any](s *stream, items []T, encode func([]byte, T) ([]byte, error)) error {
	buf := s.out[:0]
	for i, item := range items {
		var err error
		if buf, err = encode(buf, item); err != nil {
			return err
		}
		if len(buf) < maxWrite && i < len(items)-1 {
			continue
		}
		if err := s.write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	if s.out = buf; cap(buf) > 2*s.keep {
		s.out = nil // do not keep the memory of one large frame
	}
	return nil
}
