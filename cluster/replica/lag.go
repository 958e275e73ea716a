package replica

import (
	"time"

	"github.com/conclave-go/conclave/cluster/core"
)

// Health is what a replica knows of its own condition. None of it needs the loop.
type Health struct {
	// Idle is for how long the loop has served no event. Each tick is one.
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
	passed, s := r.lastPass(), r.Status()
	now := time.Since(r.began)
	h := Health{Idle: max(0, now-passed), Reported: s.lag.reported, Regained: s.lag.regained > 0}
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

// pass notes that the loop makes progress, and returns the time since began.
func (r *Replica) pass() time.Duration {
	now := time.Since(r.began)
	r.passed.Store(int64(now))
	return now
}

func (r *Replica) lastPass() time.Duration { return time.Duration(r.passed.Load()) }

// lag measures how far this member is behind the leader, in time: the number of entries
// would mean little, as a group applies few of them in a day or many in a second.
type lag struct {
	applied, reported uint64
	target            uint64
	since             time.Duration // applied < target since then
	// regained is when the leader was heard again, if this member has not caught up since
	// then; 0: it has. goal is the index for that; 0: not known.
	regained time.Duration
	goal     uint64
	contact  time.Duration // when there was contact to a leader last
	lost     bool          // there was none for an election timeout
	reports  uint64
}

// noteLag runs on the loop. registering is set until the registration of this process has
// its outcome, which proves that the log up to it is here.
func (r *Replica) noteLag(c core.Status, peers map[uint64]core.PeerProgress, registering bool) {
	now := r.lastPass()
	r.lag.reached(c.Applied, c.Reported, now)
	contact := c.Leads || c.Leader != 0 && time.Duration(c.Ticks-peers[c.Leader].Heard)*r.cfg.Heartbeat <= r.cfg.Election
	r.lag.heard(contact, c.Leads || registering && c.Registered, c.Reports, now, r.cfg.Election)
}

// reached takes the current indexes. A target that is reached is replaced by what the
// leader has reported by now, so under load each one is as old as an entry's round trip.
func (l *lag) reached(applied, reported uint64, now time.Duration) {
	l.applied, l.reported = applied, reported
	if applied >= l.target {
		l.target, l.since = reported, now
	}
}

// heard takes whether there is contact to a leader, whether it is proven that this member
// is up to date, and how often a leader has reported its commit index. Its heartbeats do not:
// they have no more than this member has acknowledged. A leader that misses nothing in this
// member's log sends no append either, so after an election timeout that counts too.
func (l *lag) heard(contact, proven bool, reports uint64, now, election time.Duration) {
	switch {
	case !contact && now <= l.contact+election:
		return // an election, probably
	case !contact:
		l.lost, l.regained, l.goal, l.reports = true, 0, 0, reports
		return
	case l.lost:
		l.lost, l.regained = false, now
	}
	l.contact = now
	if l.regained == 0 {
		return
	}
	if l.goal == 0 && (reports != l.reports || now >= l.regained+election) {
		l.goal = l.reported
	}
	if proven || l.goal > 0 && l.applied >= l.goal {
		l.regained, l.goal = 0, 0
	}
}
