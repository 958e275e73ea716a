package replica

import (
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
)

// pulse is when the loop last made progress. It may be read on any goroutine.
type pulse struct {
	began  time.Time    // of the replica
	passed atomic.Int64 // when the loop last served an event, since began
}

// pass notes that the loop makes progress, and returns the time since began.
func (p *pulse) pass() time.Duration {
	now := time.Since(p.began)
	p.passed.Store(int64(now))
	return now
}

func (p *pulse) lastPass() time.Duration { return time.Duration(p.passed.Load()) }

// lag is owned by the loop. It measures how far this member is behind the leader, in time: the number of entries
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

// note takes what the core knows at a time. registering is set until the registration of this process has
// its outcome, which proves that the log up to it is here. It returns whether this member leads or hears a leader.
func (l *lag) note(c core.Status, peers map[uint64]core.PeerProgress, registering bool, now, heartbeat, election time.Duration) (contact bool) {
	l.reached(c.Applied, c.Reported, now)
	contact = c.Leads || c.Leader != 0 && time.Duration(c.Ticks-peers[c.Leader].Heard)*heartbeat <= election
	l.heard(contact, c.Leads || registering && c.Registered, c.Reports, now, election)
	return contact
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
