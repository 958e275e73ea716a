// Package queue is a bounded queue of what one connection sends. It is a seam, not an API: only package transport uses it.
package queue

import "sync"

// Queue is a bounded queue between callers that must not block and one writer. It has flows, which take
// turns: what one flow has queued delays no other one for long, and in a fair queue leaves room for the others. The items of a flow are written
// in their order, and those that are bulk behind the others. Bulk may fill half of the queue. Items count
// against the bounds until they are written, so that the bounds, with what is reserved for each flow, are those of the memory in use.
type Queue[T any] struct {
	maxItems, maxBytes int
	fair               bool // see NewFair
	reserved           reserve
	Ready              chan struct{} // holds a token while items are queued

	mu                  sync.Mutex // guards what follows
	accepting           bool
	flows               map[uint32]*flow[T] // those that have items
	ring                []*flow[T]          // the same; the first is next
	spare               *flow[T]            // to be used again
	queued              load                // bulk included
	bulk                load
	writing, writeBytes int // being written
	waiting             []*waiter[T]
	gather              gathering
}

// reserve is what each flow may have in the queue although others have filled that.
type reserve struct{ items, bytes int }

// load is what a queue or a flow has.
type load struct{ items, bytes int }

func (l *load) add(size int)   { l.items, l.bytes = l.items+1, l.bytes+size }
func (l *load) remove(of load) { l.items, l.bytes = l.items-of.items, l.bytes-of.bytes }

// within reports whether another item of that size is within bounds.
func (l load) within(size, items, bytes int) bool { return l.items < items && l.bytes+size <= bytes }

type flow[T any] struct {
	number      uint32
	items, bulk []sized[T]
	queued      load // bulk included
	queuedBulk  load
}

type sized[T any] struct {
	item T
	size int
}

// New returns a queue that accepts nothing before Reset, and reserves nothing for a flow.
func New[T any](maxItems, maxBytes int) *Queue[T] {
	return &Queue[T]{maxItems: maxItems, maxBytes: maxBytes, Ready: make(chan struct{}, 1), flows: make(map[uint32]*flow[T])}
}

// NewFair is New, but each flow may have as much of the queue as is free for every other one (Choudhury and Hahne, Dynamic Queue Length
// Thresholds): half of it, if the others have nothing there, and n flows with much to send have an equal part each and leave one more.
// Besides, each flow may have so many items and bytes in the queue also when others have filled it, and half as much of bulk.
func NewFair[T any](maxItems, maxBytes, items, bytes int) *Queue[T] {
	q := New[T](maxItems, maxBytes)
	q.fair, q.reserved = true, reserve{items, bytes}
	return q
}

// Reset empties the queue and sets whether it accepts items from now on.
func (q *Queue[T]) Reset(accept bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.accepting = accept
	clear(q.flows)
	q.ring, q.spare = nil, nil
	q.queued, q.bulk, q.writing, q.writeBytes = load{}, load{}, 0, 0
	q.gather.stop()
	select {
	case <-q.Ready:
	default:
	}
}

// Push never blocks. It returns false if the queue is full or does not accept.
func (q *Queue[T]) Push(number uint32, item T, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hasRoom(number, size) {
		return false
	}
	q.put(number, item, size)
	q.signal()
	return true
}

func (q *Queue[T]) put(number uint32, item T, size int) {
	l := q.flow(number)
	l.items = append(l.items, sized[T]{item, size})
	l.queued.add(size)
	q.queued.add(size)
}

// PushBulk is Push for what is bulk.
func (q *Queue[T]) PushBulk(number uint32, item T, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, bulk := q.has(number)
	roomy := q.hasRoomInQueue(number, size) && q.admits(q.bulk, bulk, size, q.maxItems/2, q.maxBytes/2)
	if !q.accepting || !roomy && !q.hasReserveForBulk(number, size) {
		return false
	}
	l := q.flow(number)
	l.bulk = append(l.bulk, sized[T]{item, size})
	l.queued.add(size)
	l.queuedBulk.add(size)
	q.queued.add(size)
	q.bulk.add(size)
	q.signal()
	return true
}

// flow returns that flow, which is about to have an item.
func (q *Queue[T]) flow(number uint32) *flow[T] {
	l := q.flows[number]
	if l == nil {
		if l = q.spare; l == nil {
			l = new(flow[T])
		}
		q.spare, l.number = nil, number
		q.flows[number] = l
		q.ring = append(q.ring, l)
	}
	return l
}

// has returns what a flow has queued, bulk included, and its bulk.
func (q *Queue[T]) has(number uint32) (queued, bulk load) {
	if l := q.flows[number]; l != nil {
		queued, bulk = l.queued, l.queuedBulk
	}
	return queued, bulk
}

func (q *Queue[T]) hasRoom(number uint32, size int) bool {
	return q.accepting && (q.hasRoomInQueue(number, size) || q.hasReserve(number, size))
}

func (q *Queue[T]) hasRoomInQueue(number uint32, size int) bool {
	all := load{q.queued.items + q.writing, q.queued.bytes + q.writeBytes}
	queued, _ := q.has(number)
	return q.admits(all, queued, size, q.maxItems, q.maxBytes)
}

// admits reports whether a flow that has a part of all may have another item, within bounds of all.
func (q *Queue[T]) admits(all, part load, size, items, bytes int) bool {
	return all.within(size, items, bytes) && (!q.fair || part.within(size, items-all.items, bytes-all.bytes))
}

func (q *Queue[T]) hasReserve(number uint32, size int) bool {
	queued, _ := q.has(number)
	return queued.within(size, q.reserved.items, q.reserved.bytes)
}

// hasReserveForBulk leaves half of a flow's reserve to what is not bulk.
func (q *Queue[T]) hasReserveForBulk(number uint32, size int) bool {
	_, bulk := q.has(number)
	return q.hasReserve(number, size) && bulk.within(size, q.reserved.items/2, q.reserved.bytes/2)
}

func (q *Queue[T]) signal() {
	select {
	case q.Ready <- struct{}{}:
	default:
	}
}

// Take returns items for writing, of up to limit bytes and the rest of the last item. The flows get a turn each, and the next call goes on with the flow
// behind the last.
func (q *Queue[T]) Take(limit int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gather.stop()  // what is left is signalled below
	const fewest = 4 // flows that share a write
	turn := limit / max(1, min(len(q.ring), fewest))
	var items []T
	taken := load{}
	for round := len(q.ring); round > 0 && taken.bytes < limit; round-- {
		l := q.ring[0]
		q.ring[0] = nil
		q.ring = q.ring[1:]
		items = q.serve(l, turn, items, &taken)
		if l.queued.items > 0 {
			q.ring = append(q.ring, l)
		} else {
			delete(q.flows, l.number)
			q.spare = l
		}
	}
	q.queued.remove(taken)
	q.writing, q.writeBytes = taken.items, taken.bytes
	if len(q.ring) > 0 {
		q.signal()
	} else {
		q.ring = nil // frees the array
	}
	return items
}

// serve takes the items of a flow's turn: of up to limit bytes, and the rest of the last item.
func (q *Queue[T]) serve(l *flow[T], limit int, items []T, taken *load) []T {
	var served, bulk load
	items = move(&l.items, limit, items, &served)
	items = move(&l.bulk, limit-served.bytes, items, &bulk)
	l.queuedBulk.remove(bulk)
	q.bulk.remove(bulk)
	served = load{served.items + bulk.items, served.bytes + bulk.bytes}
	l.queued.remove(served)
	taken.items, taken.bytes = taken.items+served.items, taken.bytes+served.bytes
	return items
}

// move appends the first items of a list to others, until they have limit bytes.
func move[T any](from *[]sized[T], limit int, to []T, moved *load) []T {
	n := 0
	for ; n < len(*from) && moved.bytes < limit; n++ {
		to = append(to, (*from)[n].item)
		moved.add((*from)[n].size)
		(*from)[n] = sized[T]{}
	}
	if *from = (*from)[n:]; len(*from) == 0 {
		*from = nil // frees the array
	}
	return to
}

// Written releases the room of what Take returned, and returns its bytes.
func (q *Queue[T]) Written() (bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes = q.writeBytes
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
	return q.queued.items - q.bulk.items, q.bulk.items, q.queued.bytes + q.writeBytes
}
