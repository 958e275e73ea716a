package conclave

import (
	"fmt"
	"log/slog"
)

// Events tells an application what happens in its node. Every function may be
// nil. They are called one at a time, in order, on a goroutine of the node; one
// that blocks delays only the later ones, of which up to 1,024 wait and further
// ones are dropped, with a line in the log. They may come before Open has
// returned, and none may wait for Open or Close: those wait for them.
type Events struct {
	LeaderChanged func(leader MemberID, term uint64) // 0: no leader is known
	SessionEnded  func(id SessionID, why error)      // a session of this node
	LockLost      func(name string, fence Fence)     // a hold of this node: of a lock, an election or permits
}

const maxEvents = 1024

// events calls an application's functions.
type events struct {
	on    Events
	log   *slog.Logger
	queue chan func()
}

func newEvents(on *Events, log *slog.Logger) *events {
	e := &events{log: log, queue: make(chan func(), maxEvents)}
	if on != nil {
		e.on = *on
	}
	return e
}

// run calls what is queued until done is closed, and what is left then.
func (e *events) run(done <-chan struct{}) {
	for {
		select {
		case f := <-e.queue:
			e.call(f)
		case <-done:
			for {
				select {
				case f := <-e.queue:
					e.call(f)
				default:
					return
				}
			}
		}
	}
}

// call shields the node from a panic of the application's.
func (e *events) call(f func()) {
	defer func() {
		if r := recover(); r != nil {
			e.log.Error("an event function panicked", "panic", fmt.Sprint(r))
		}
	}()
	f()
}

func (e *events) put(f func()) {
	select {
	case e.queue <- f:
	default:
		e.log.Warn("an event is dropped: an event function blocks")
	}
}

func (e *events) leaderChanged(leader, term uint64) {
	if f := e.on.LeaderChanged; f != nil {
		e.put(func() { f(MemberID(leader), term) })
	}
}

func (e *events) sessionEnded(id SessionID, why error) {
	if f := e.on.SessionEnded; f != nil {
		e.put(func() { f(id, why) })
	}
}

func (e *events) lockLost(name string, fence Fence) {
	if f := e.on.LockLost; f != nil {
		e.put(func() { f(name, fence) })
	}
}
