package linger

// Place is the place of an owner that waits.
type Place[O any] struct {
	Owner      O
	waiting    bool
	prev, next *Place[O]
}

// queue is a doubly linked list, so that leaving from the middle is O(1).
type queue[O any] struct {
	first, last *Place[O]
	len         int
}

func (q *queue[O]) push(p *Place[O]) {
	p.waiting, p.prev, p.next = true, q.last, nil
	if q.last == nil {
		q.first = p
	} else {
		q.last.next = p
	}
	q.last = p
	q.len++
}

func (q *queue[O]) remove(p *Place[O]) {
	if p.prev == nil {
		q.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		q.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.waiting, p.prev, p.next = false, nil, nil
	q.len--
}

func (q *queue[O]) pop() O {
	p := q.first
	q.remove(p)
	return p.Owner
}
