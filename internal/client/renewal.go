package client

import (
	"context"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// renewal renews the registration of this process and all of its leases by one
// command, each third of the smallest TTL. One renewal is under way at a time: it
// is retried until its outcome is known.
type renewal struct {
	client *Client

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu
	due     instant     // guarded by mu; when the timer runs
	stopped bool        // guarded by mu
}

func (r *renewal) begin() { r.schedule(r.client.clock.now()) }

// schedule sets the timer to an interval after that time.
func (r *renewal) schedule(after instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.due = after + instant(r.client.smallestTTL()/3)
		r.timer = time.AfterFunc(max(r.client.clock.until(r.due), 0), r.send)
	}
}

// hasten brings the timer forward for a lease that needs a renewal earlier. If the
// timer has fired already, schedule will see the lease.
func (r *renewal) hasten(l *Lease) {
	if l.ttl == NoTTL {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.client.clock.now() + instant(l.ttl/3)
	if r.timer != nil && due < r.due && r.timer.Stop() {
		r.due = due
		r.timer.Reset(r.client.clock.until(due))
	}
}

func (r *renewal) send() {
	sent := r.client.clock.now()
	for _, l := range r.client.liveLeases() {
		l.Err() // after a suspend, this is the first look at the deadline
	}
	r.client.pursue(renewCommand(), func(a answer) {
		r.acknowledged(sent, a)
		r.schedule(sent)
	})
}

// acknowledged moves the deadlines of the leases that are bound to the incarnation
// that was renewed. They count from the moment at which the renewal was sent: the
// group's TTL cannot have begun earlier.
func (r *renewal) acknowledged(sent instant, a answer) {
	if a.fault() != nil {
		return
	}
	for _, l := range r.client.liveLeases() {
		if l.incarnation == a.incarnation {
			l.renewed(sent)
		}
	}
}

// Renew renews the registration and all leases now. It blocks until the group has
// acknowledged it.
func (c *Client) Renew(ctx context.Context) error {
	sent := c.clock.now()
	reply, err := c.send(ctx, renewCommand(), func(a answer) { c.renewal.acknowledged(sent, a) })
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
