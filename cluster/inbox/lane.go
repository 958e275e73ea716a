package inbox

import "github.com/conclave-go/conclave/internal/wire"

// lane is what waits of one kind in a share. Each process has a queue of its own there, and they
// take turns: a member's share has one queue, that of its clients one for each client, so that
// none of them keeps the others from the log.
type lane struct {
	turns []*queue          // that are not empty; the first is next
	of    map[uint64]*queue // the same, by the process
	bytes int               // of all of them
}

// queue is what waits of one process, in order of arrival.
type queue struct {
	process uint64
	waiting []queued
	bytes   int
}

type queued struct {
	*wire.Submission
	size int // encoded
}

// bytes is what a submission takes, encoded, and callOverhead for each call.
func (q queued) bytes() int { return q.size + len(q.GetCalls())*callOverhead }

func (l *lane) empty() bool { return len(l.turns) == 0 }

// front is what is next, if the lane is not empty.
func (l *lane) front() queued { return l.turns[0].waiting[0] }

func (l *lane) push(process uint64, q queued) {
	at := l.of[process]
	if at == nil {
		at = &queue{process: process}
		if l.of == nil {
			l.of = make(map[uint64]*queue)
		}
		l.of[process] = at
		l.turns = append(l.turns, at)
	}
	at.waiting = append(at.waiting, q)
	at.bytes += q.bytes()
	l.bytes += q.bytes()
}

// pop removes what is next, and gives the next process its turn.
func (l *lane) pop() queued {
	at := l.turns[0]
	q := at.waiting[0]
	at.waiting[0] = queued{}
	at.waiting = at.waiting[1:]
	l.turns[0] = nil
	l.turns = l.turns[1:]
	if l.removed(at, q); len(at.waiting) > 0 {
		l.turns = append(l.turns, at)
	}
	return q
}

// drop removes the latest of the process that has added last if it has its part of the lane or
// more, and else of the one that has most.
func (l *lane) drop(added uint64) queued {
	most := l.of[added]
	if most == nil || most.bytes*len(l.turns) < l.bytes {
		for _, at := range l.turns {
			if most == nil || at.bytes > most.bytes {
				most = at
			}
		}
	}
	last := len(most.waiting) - 1
	q := most.waiting[last]
	most.waiting[last] = queued{}
	most.waiting = most.waiting[:last]
	if l.removed(most, q); last == 0 {
		l.leave(most)
	}
	return q
}

// removed accounts for what has been taken from a queue.
func (l *lane) removed(at *queue, q queued) {
	at.bytes -= q.bytes()
	l.bytes -= q.bytes()
	if len(at.waiting) == 0 {
		delete(l.of, at.process)
	}
}

// leave takes an empty queue out of the turns.
func (l *lane) leave(empty *queue) {
	for i, at := range l.turns {
		if at == empty {
			l.turns = append(l.turns[:i], l.turns[i+1:]...)
			return
		}
	}
}
