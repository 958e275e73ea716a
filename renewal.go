package conclave

import (
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
	stopped bool        // guarded by mu
}

func (r *renewal) begin() { r.after(r.interval()) }

func (r *renewal) interval() time.Duration { return min(r.node.cfg.SessionTTL, incarnationTTL) / 3 }

func (r *renewal) after(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.timer = time.AfterFunc(max(d, 0), r.send)
	}
}

// send renews. Only what the group acknowledges counts, and from the moment at
// which it was sent: the group's TTL cannot have begun earlier.
func (r *renewal) send() {
	sent := r.node.clock.now()
	for _, s := range r.node.aliveSessions() {
		s.alive() // a machine that was suspended finds out here at the latest
	}
	cmd := &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}
	r.node.pursue(cmd, func(a answer) {
		if a.err == nil && refusal(a.reply) == nil {
			for _, s := range r.node.aliveSessions() {
				s.renewed(sent)
			}
		}
		r.after(r.node.clock.until(sent + instant(r.interval())))
	})
}

func (r *renewal) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
