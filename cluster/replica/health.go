package replica

import (
	"time"

	"github.com/conclave-go/conclave/cluster/core"
)

// Health is what a replica knows of its own condition. None of it needs the loop.
type Health struct {
	// Idle is for how long the loop has served no event that was due. Each tick is one.
	Idle time.Duration
	// Reported is the commit index that the leader has reported.
	Reported uint64
	// Behind is for how long Applied has been less than an index reported; 0: it is not.
	Behind time.Duration
	// Contact is how long ago the leader was heard, or without one the last leader; 0 if this
	// member leads.
	Contact time.Duration
	// Regained is set when the leader is heard again after an outage, until this member has
	// what it missed.
	Regained bool
}

// Health returns the current condition, and the status that it is of. It never blocks.
func (r *Replica) Health() (*Status, Health) {
	// In this order: what is published later than now would make a duration negative.
	passed, s := r.pulse.lastPass(), r.Status()
	now := time.Since(r.pulse.began)
	h := Health{Idle: max(0, now-passed), Reported: s.lag.reported, Regained: s.lag.regained > 0}
	if s.Quiet {
		h.Idle = max(0, h.Idle-core.QuietTicks*r.cfg.Heartbeat)
	}
	if s.Applied < h.Reported {
		h.Behind = max(0, now-s.lag.since)
	}
	switch s.Leader {
	case 0:
		h.Contact = max(0, now-s.lag.contact)
	case r.cfg.Member:
	default:
		ticks := s.Ticks - s.Peers[s.Leader].Heard // 0 is the tick of the start
		h.Contact = time.Duration(ticks)*r.cfg.Heartbeat + h.Idle
	}
	return s, h
}
