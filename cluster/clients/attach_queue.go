package clients

import (
	"cmp"
	"container/heap"
)

// attachQueue is the clients that wait to be attached, a heap by the index that they wait for: a
// client may name any, and each step of the loop looks whether one is due. Those that wait for
// one index are due in the order in which they came: of two connections of one client the later
// one remains. It implements [heap.Interface].
type attachQueue []*conn

// add adds a client.
func (q *attachQueue) add(c *conn) { heap.Push(q, c) }

// due removes and returns a client that waits for no entry after index; nil: there is none.
func (q *attachQueue) due(index uint64) *conn {
	if !q.isDue(index) {
		return nil
	}
	return heap.Pop(q).(*conn)
}

// isDue reports whether a client waits for no entry after index.
func (q *attachQueue) isDue(index uint64) bool {
	return len(*q) > 0 && (*q)[0].attach.GetApplied() <= index
}

// remove removes a client if it waits.
func (q *attachQueue) remove(c *conn) {
	if c.place > 0 {
		heap.Remove(q, c.place-1)
	}
}

// Len implements [heap.Interface].
func (q attachQueue) Len() int { return len(q) }

// Less implements [heap.Interface].
func (q attachQueue) Less(i, j int) bool {
	a, b := q[i], q[j]
	return cmp.Or(cmp.Compare(a.attach.GetApplied(), b.attach.GetApplied()), cmp.Compare(a.arrived, b.arrived)) < 0
}

// Swap implements [heap.Interface].
func (q attachQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i+1, j+1
}

// Push implements [heap.Interface].
func (q *attachQueue) Push(x any) {
	c := x.(*conn)
	*q = append(*q, c)
	c.place = len(*q)
}

// Pop implements [heap.Interface].
func (q *attachQueue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last] = nil
	*q, c.place = (*q)[:last], 0
	return c
}
