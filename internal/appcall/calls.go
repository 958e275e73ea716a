// Package appcall calls functions of the application on goroutines of their own. A function
// that does not return, panics or ends its goroutine then costs the one thing that it was
// asked for, and the goroutines of this module go on.
package appcall

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// The limits of calls that have not returned when their time was up. Each has a goroutine still.
const (
	maxLate     = 4096 // of all functions
	MaxLate     = 1024 // of one function; a call whose connection is closed is late for a moment
	maxLateDial = 4    // of Dial for one address
)

var (
	// ErrLate: the function has not returned in time.
	ErrLate = errors.New("the application's function has not returned in time")
	// ErrStuck: so many earlier calls have not returned that no further one is made.
	ErrStuck = errors.New("limit exceeded: earlier calls of the application's function have not returned")
)

// PanicError reports that a function has panicked or, with a nil Value, ended its goroutine.
type PanicError struct{ Value any }

// Error names what was passed to panic by its type: its text is a function of the application.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the application's function has ended its goroutine"
	}
	return fmt.Sprintf("the application's function has panicked with a %T", e.Value)
}

// Calls are the calls under way. The zero value is ready for use.
type Calls struct {
	Logger *slog.Logger // of panics; nil: none

	mu      sync.Mutex
	running int            // guarded by mu; calls that have not returned
	late    map[string]int // guarded by mu; those whose caller has not waited longer, by their key
	total   int            // guarded by mu; the sum of late
	idle    chan struct{}  // guarded by mu; closed when running becomes 0; nil: Wait does not wait
}

// Do calls f on a goroutine of its own and returns its result, or an error: ErrLate when done
// is closed first, ErrStuck, or a *PanicError. A result that comes after ErrLate is passed to
// late, unless that is nil. At most limit calls with the key may be late at a time; 0: any
// number.
func Do[T any](c *Calls, key string, limit int, done <-chan struct{}, f func() T, late func(T)) (T, error) {
	call := &call[T]{calls: c, key: key, counts: limit > 0, ended: make(chan struct{})}
	if !c.begin(key, limit) {
		return call.result, fmt.Errorf("%w: %d of %s", ErrStuck, limit, key)
	}
	go call.run(f, late)
	select {
	case <-call.ended:
	case <-done:
		if call.leave() {
			var none T
			return none, ErrLate
		}
	}
	return call.result, call.err
}

// Run is Do for a function without a result.
func Run(c *Calls, key string, limit int, done <-chan struct{}, f func()) error {
	_, err := Do(c, key, limit, done, func() struct{} { f(); return struct{}{} }, nil)
	return err
}

// begin returns false if too many calls are late.
func (c *Calls) begin(key string, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit > 0 && (c.late[key] >= limit || c.total >= maxLate) {
		return false
	}
	c.running++
	return true
}

// end is called when a call has returned.
func (c *Calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Wait waits until all calls have returned, for the limit at most, and reports how many have
// not.
func (c *Calls) Wait(limit time.Duration) (left int) {
	c.mu.Lock()
	if c.running > 0 && c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	if idle == nil {
		return 0
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
		return 0
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// call is one call. result and err are set before ended is closed.
type call[T any] struct {
	calls  *Calls
	key    string
	counts bool // when it is late
	ended  chan struct{}
	result T
	err    error

	returned, left bool // guarded by calls.mu
}

// run has everything in deferred functions that must happen: f may panic, or end its goroutine
// as a test's FailNow does.
func (a *call[T]) run(f func() T, late func(T)) {
	returned := false
	defer a.calls.end()
	defer func() { a.conclude(late) }()
	defer func() {
		if !returned {
			a.fail(recover())
		}
	}()
	a.result = f()
	returned = true
}

// fail notes that the function has panicked.
func (a *call[T]) fail(value any) {
	a.err = &PanicError{Value: value}
	if log := a.calls.Logger; log != nil {
		log.Error("a function of the application panicked", "function", a.key, "panic", value, "stack", string(debug.Stack()))
	}
}

// conclude passes the result on.
func (a *call[T]) conclude(late func(T)) {
	if a.finish() {
		close(a.ended)
		return
	}
	if late == nil || a.err != nil {
		return
	}
	defer func() { _ = recover() }() // late calls the application as well, and no caller waits
	late(a.result)
}

// finish notes that the function has returned. It reports whether the caller waits for it.
func (a *call[T]) finish() bool {
	c := a.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	a.returned = true
	if a.left && a.counts {
		c.total--
		if c.late[a.key]--; c.late[a.key] == 0 {
			delete(c.late, a.key)
		}
	}
	return !a.left
}

// leave notes that the caller waits no longer. It returns false if the function has returned.
func (a *call[T]) leave() bool {
	c := a.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.returned {
		return false
	}
	a.left = true
	if a.counts {
		if c.late == nil {
			c.late = make(map[string]int)
		}
		c.late[a.key]++
		c.total++
	}
	return true
}
