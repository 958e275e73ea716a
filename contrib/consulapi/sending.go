package consulapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// tinyAnswer is what a connection's buffers take anyway.
	tinyAnswer = 4 << 10
	// smallAnswer is what has room apart from large answers: a value of the largest size as JSON has.
	smallAnswer = 1 << 20
	// smallRoom is the room for small answers, in bytes.
	smallRoom = 64 << 20
	// maxStall is for how long a client that takes nothing of its answer keeps others waiting for room.
	maxStall = 2 * time.Second
	// writeTimeout bounds how long an answer is sent, whether others wait or not.
	writeTimeout = time.Minute
	writePart    = 32 << 10
)

// sending bounds the bytes of the answers that wait for their clients. When there is no room, the
// answer whose client has taken nothing for the longest, and for maxStall, is broken off: clients that
// do not read keep no others waiting. The places for large bodies are bounded likewise, each as one
// byte.
type sending struct {
	limit int
	turn  chan struct{} // holds a value while a call waits for room: they get it in turns

	mu      sync.Mutex
	used    int           // guarded by mu
	waiting int           // guarded by mu; calls
	open    []*room       // guarded by mu
	freed   chan struct{} // guarded by mu; closed, and replaced, when there is more room
}

func newSending(limit int) *sending {
	return &sending{limit: limit, turn: make(chan struct{}, 1), freed: make(chan struct{})}
}

// room is the bytes of one answer.
type room struct {
	of    *sending
	size  int
	moved atomic.Int64 // when the client took something last, as nanoseconds of Unix time

	abort func() // guarded by mu of the sending; nil: the answer is not being sent, or was broken off
}

// try returns room for an answer, or nil.
func (s *sending) try(size int) *room {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting > 0 {
		return nil
	}
	return s.take(size)
}

// take is called with mu held.
func (s *sending) take(size int) *room {
	if len(s.open) > 0 && s.used+size > s.limit {
		return nil
	}
	r := &room{of: s, size: size}
	r.progress()
	s.used += size
	s.open = append(s.open, r)
	return r
}

// await blocks until there is room, or ctx is done.
func (s *sending) await(ctx context.Context, size int) (*room, error) {
	s.count(1)
	defer s.count(-1)
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for {
		r, freed, again := s.takeOrInterrupt(size)
		if r != nil {
			return r, nil
		}
		timer := time.NewTimer(again)
		select {
		case <-freed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		timer.Stop()
	}
}

func (s *sending) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting += n
}

// takeOrInterrupt returns room, or breaks the answer off that has stalled for the longest, and returns
// when it is worth trying again.
func (s *sending) takeOrInterrupt(size int) (r *room, freed <-chan struct{}, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.take(size); r != nil {
		return r, nil, 0
	}
	var victim *room
	for _, o := range s.open {
		if o.abort != nil && (victim == nil || o.moved.Load() < victim.moved.Load()) {
			victim = o
		}
	}
	if victim == nil {
		return nil, s.freed, maxStall
	}
	if again = maxStall - time.Since(time.Unix(0, victim.moved.Load())); again <= 0 {
		victim.abort()
		victim.abort, again = nil, maxStall
	}
	return nil, s.freed, again
}

func (r *room) progress() { r.moved.Store(time.Now().UnixNano()) }

// sent has abort break the answer off until leave is called; nil: nothing can.
func (r *room) sent(abort func()) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.abort = abort
}

// leave releases the room.
func (r *room) leave() {
	s := r.of
	s.mu.Lock()
	defer s.mu.Unlock()
	r.abort = nil // the connection may carry the next answer
	for i, o := range s.open {
		if o == r {
			s.open = append(s.open[:i], s.open[i+1:]...)
			s.used -= r.size
			close(s.freed)
			s.freed = make(chan struct{})
			return
		}
	}
}

// output is an answer that was made and is to be sent.
type output struct {
	status      int
	contentType string
	body        []byte
}

// noRoom: an answer was made, and there is no room for it. One that can be made again is, once there
// is: see gathered.
type noRoom struct {
	size int
	out  *output // nil: it was not made yet
}

func (*noRoom) Error() string { return "no room for the answer" }

// write makes the answer that is sent when the action has returned, and so keeps no place while its
// client reads it. The error is a noRoom.
func (c *call) write(status int, contentType string, body []byte) error {
	out := &output{status, contentType, body}
	if c.reserve(len(body)) != nil {
		return &noRoom{len(body), out}
	}
	c.out = out
	return nil
}

// reserve takes room for an answer before it is made. The error is a noRoom.
func (c *call) reserve(size int) error {
	if size <= tinyAnswer || c.room != nil && c.room.size >= size {
		return nil
	}
	c.leaveRoom()
	if c.room = c.sendingOf(size).try(size); c.room == nil {
		return &noRoom{size: size}
	}
	return nil
}

func (s *server) sendingOf(size int) *sending {
	if size <= smallAnswer {
		return s.small
	}
	return s.large
}

func (c *call) leaveRoom() {
	if c.room != nil {
		c.room.leave()
		c.room = nil
	}
}

// awaitRoom blocks until there is room for the answer of a noRoom, for Options.Timeout at most.
func (c *call) awaitRoom(size int) (err error) {
	ctx, cancel := c.patience()
	defer cancel()
	if c.room, err = c.sendingOf(size).await(ctx, size); err != nil {
		return busy("too many large answers are under way")
	}
	return nil
}

// gathered makes an answer. If there is no room for it, the answer is dropped, and made again once there
// is, so that those that wait take no memory.
func (c *call) gathered(gather func() error) error {
	for {
		err := gather()
		var full *noRoom
		if !errors.As(err, &full) {
			return err
		}
		if err := c.awaitRoom(full.size); err != nil {
			return err
		}
	}
}

// send sends the answer, and releases its room.
func (c *call) send() {
	defer c.leaveRoom()
	// Each answer of a connection sets it again. Where the server cannot, its own timeouts count.
	controller := http.NewResponseController(c.w)
	_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	if c.r.ContentLength != 0 && !c.read { // the server skips the body first
		_ = controller.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	if c.room != nil {
		c.room.progress()
		c.room.sent(func() { _ = controller.SetWriteDeadline(time.Unix(1, 0)) })
	}
	if c.out.contentType != "" {
		c.w.Header().Set("Content-Type", c.out.contentType)
	}
	c.w.Header().Set("Content-Length", strconv.Itoa(len(c.out.body)))
	c.w.WriteHeader(c.out.status)
	for rest := c.out.body; len(rest) > 0; {
		n, err := c.w.Write(rest[:min(len(rest), writePart)])
		if err != nil {
			return // the client has disconnected, or was too slow
		}
		if rest = rest[n:]; c.room != nil {
			c.room.progress()
		}
	}
}
