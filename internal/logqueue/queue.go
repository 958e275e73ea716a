// Package logqueue keeps an application's Logger away from the goroutines of this module: a
// handler that blocks delays and costs log lines, and nothing else.
//
// A [Queue] has a goroutine only while a line is waiting, so one that is never closed leaks
// nothing.
package logqueue

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// The limits of what waits for a handler.
const (
	maxLines = 1024
	maxBytes = 1 << 20 // of the texts, with attrBytes for each attribute
)

// Queue holds the lines that wait for an application's handler, and calls it.
type Queue struct {
	began time.Time

	mu      sync.Mutex    // held for moments, never while a function of the application runs
	waiting []line        // guarded by mu
	bytes   int           // guarded by mu; of waiting
	dropped uint64        // guarded by mu; lines since the last one that reports them
	total   uint64        // guarded by mu; lines dropped ever
	panics  string        // guarded by mu; the value of the last panic of the handler since then
	running bool          // guarded by mu; a goroutine makes the calls
	closed  bool          // guarded by mu; nothing is queued any more
	left    bool          // guarded by mu; nothing is called any more
	ended   chan struct{} // guarded by mu; closed when the goroutine ends; nil: Close does not wait
}

// line is one call of a handler.
type line struct {
	to     *target
	record slog.Record
	size   int
	asks   bool // only whether the level of the record is enabled
}

// New returns a Logger that queues its lines for the handler of another one. That one's level
// is known once it has been asked: until then every level is enabled. Of a nil Logger the
// result discards everything, and the Queue is nil, which is valid.
func New(to *slog.Logger) (*slog.Logger, *Queue) {
	if to == nil || to.Handler() == slog.DiscardHandler {
		return slog.New(slog.DiscardHandler), nil
	}
	q := &Queue{began: time.Now()}
	return slog.New(&handler{queue: q, to: &target{handler: to.Handler()}}), q
}

// put queues a line, or drops it if there is no room.
func (q *Queue) put(l line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return
	case len(q.waiting) >= maxLines-1 || q.bytes+l.size > maxBytes: // one is for the report
		if !l.asks {
			q.drop(1)
		}
		return
	}
	q.report(l.to)
	q.waiting = append(q.waiting, l)
	q.bytes += l.size
	q.start()
}

// drop is called with mu held.
func (q *Queue) drop(n uint64) {
	q.dropped += n
	q.total += n
}

// report queues a line about those that were dropped, where they would stand. mu is held.
func (q *Queue) report(to *target) {
	if q.dropped == 0 {
		return
	}
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "log lines dropped: the Logger blocks or panics", 0)
	r.AddAttrs(slog.Uint64("lines", q.dropped))
	if q.panics != "" {
		r.AddAttrs(slog.String("panic", q.panics))
	}
	q.dropped, q.panics = 0, ""
	q.waiting = append(q.waiting, line{to: to.root(), record: r})
}

// start starts the goroutine that makes the calls, unless it runs. mu is held.
func (q *Queue) start() {
	if !q.running {
		q.running = true
		go q.drain()
	}
}

// drain makes the calls that wait. A handler may end its goroutine, by a panic or by
// runtime.Goexit, as a test's FailNow does: the line is lost, and another goroutine goes on.
func (q *Queue) drain() {
	var current line
	finished := false
	defer func() {
		if finished {
			return
		}
		q.failed(current, recover(), func() { go q.drain() })
	}()
	for {
		var more bool
		if current, more = q.next(current.to); !more {
			finished = true
			return
		}
		current.to.call(&current)
	}
}

// next returns the next line, or false at the end of the goroutine. last is where the line
// before went.
func (q *Queue) next(last *target) (line, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 && last != nil {
		q.report(last)
	}
	if len(q.waiting) == 0 || q.left {
		q.running, q.waiting, q.bytes = false, nil, 0
		if q.ended != nil {
			close(q.ended)
			q.ended = nil
		}
		return line{}, false
	}
	l := q.waiting[0]
	q.waiting[0] = line{}
	q.waiting = q.waiting[1:]
	q.bytes -= l.size
	return l, true
}

// failed counts a line whose handler ended its goroutine, and calls then, although the text of
// what the handler panicked with may end this goroutine as well. A report that fails is not
// reported.
func (q *Queue) failed(l line, panicked any, then func()) {
	defer then()
	text := fmt.Sprintf("%T", panicked)
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if l.asks || l.size == 0 {
			return
		}
		q.drop(1)
		q.panics = text
	}()
	text = describe(panicked)
}

// Dropped returns how many lines were dropped.
func (q *Queue) Dropped() uint64 {
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// Close waits until the handler has taken what waits, for the limit at most. Then no function
// of the application is called any more, and no goroutine is left but one inside the handler.
// It may be called more than once.
func (q *Queue) Close(limit time.Duration) {
	if q == nil {
		return
	}
	q.mu.Lock()
	q.closed = true
	if q.running && q.ended == nil {
		q.ended = make(chan struct{})
	}
	ended := q.ended
	q.mu.Unlock()
	if ended == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		q.mu.Lock()
		defer q.mu.Unlock()
		q.left = true
	}
}
