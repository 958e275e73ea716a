package conclave

import (
	"context"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// renewal keeps this process and its sessions alive in the group, by one
// command for all of them, each third of the smallest TTL. One is under way at
// a time: it is sent again underneath until its outcome is known.
type renewal struct {
	node *Node

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu
	due     instant     // guarded by mu; when the timer runs
	stopped bool        // guarded by mu
}

func (r *renewal) begin() { r.next(r.node.clock.now()) }

// interval is a third of the smallest TTL that there is.
func (r *renewal) interval() instant {
	smallest := r.node.memory
	for _, s := range r.node.aliveSessions() {
		if s.ttl != NoTTL {
			smallest = min(smallest, s.ttl)
		}
	}
	return instant(smallest / 3)
}

// next sets the timer to an interval after that time.
func (r *renewal) next(after instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.due = after + r.interval()
		r.timer = time.AfterFunc(max(r.node.clock.until(r.due), 0), r.send)
	}
}

// hasten brings the timer forward if a session has come that cannot wait so
// long. When the timer has run out, next will see the session.
func (r *renewal) hasten(s *Session) {
	if s.ttl == NoTTL {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.node.clock.now() + instant(s.ttl/3)
	if r.timer != nil && due < r.due && r.timer.Stop() {
		r.due = due
		r.timer.Reset(r.node.clock.until(due))
	}
}

// send renews.
func (r *renewal) send() {
	sent := r.node.clock.now()
	for _, s := range r.node.aliveSessions() {
		s.alive() // a machine that was suspended finds out here at the latest
	}
	r.node.pursue(renewCommand(), func(a answer) {
		r.acknowledged(sent, a)
		r.next(sent)
	})
}

// acknowledged moves the deadlines. Only what the group acknowledges counts, and
// from the moment at which it was sent: the group's TTL cannot have begun
// earlier. It counts for what is bound to the incarnation that was renewed.
func (r *renewal) acknowledged(sent instant, a answer) {
	if a.fault() != nil {
		return
	}
	for _, s := range r.node.aliveSessions() {
		if s.incarnation == a.incarnation {
			s.renewed(sent)
		}
	}
}

// now renews for a caller, beside what the timer does.
func (r *renewal) now(ctx context.Context) error {
	sent := r.node.clock.now()
	reply, err := r.node.send(ctx, renewCommand(), func(a answer) { r.acknowledged(sent, a) })
	if err != nil {
		return err
	}
	return refusal(reply)
}

func renewCommand() *wire.Command {
	return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}
}

func (r *renewal) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
