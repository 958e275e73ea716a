package transport

import "sync"

// queue is a bounded queue between callers that must not wait and a writer.
// What was taken counts until it is written, so the bounds are those of the
// memory in use.
type queue[T any] struct {
	maxItems, maxBytes int
	ready              chan struct{} // holds a token while there is something to take

	mu           sync.Mutex // guards what follows
	open         bool
	items        []T
	taken, bytes int // bytes: of items and taken together
	takenBytes   int
}

func newQueue[T any](maxItems, maxBytes int) *queue[T] {
	return &queue[T]{maxItems: maxItems, maxBytes: maxBytes, ready: make(chan struct{}, 1)}
}

// setOpen empties the queue; what is pushed while it is not open is refused.
func (q *queue[T]) setOpen(open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = open
	q.items, q.taken, q.bytes, q.takenBytes = nil, 0, 0, 0
	select {
	case <-q.ready:
	default:
	}
}

// push never waits; false: not open, or full.
func (q *queue[T]) push(item T, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open || len(q.items)+q.taken >= q.maxItems || q.bytes+size > q.maxBytes {
		return false
	}
	q.items = append(q.items, item)
	q.bytes += size
	select {
	case q.ready <- struct{}{}:
	default:
	}
	return true
}

// take hands over everything that waits.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items, q.taken, q.takenBytes = nil, len(items), q.bytes
	return items
}

// written gives back the room of what was taken.
func (q *queue[T]) written() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= q.takenBytes
	q.taken, q.takenBytes = 0, 0
}

// drain writes all that waits, many frames with one write.
func drain[T any](s *stream, q *queue[T], encode func([]byte, T) ([]byte, error)) error {
	items := q.take()
	defer q.written()
	buf := s.out[:0]
	for i, item := range items {
		var err error
		if buf, err = encode(buf, item); err != nil {
			return err
		}
		if len(buf) < writePiece && i < len(items)-1 {
			continue
		}
		if err := s.write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	if s.out = buf; cap(buf) > 2*writePiece {
		s.out = nil // one large frame is no reason to keep its memory
	}
	return nil
}
