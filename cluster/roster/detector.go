package roster

import (
	"time"

	"github.com/conclave-go/conclave/internal/fact"
)

// DetectionTimeout bounds how long gossip takes to show a registered process, which
// counts as dead afterwards, and to rejoin after this member was isolated. A process
// that gossip has shown before is declared dead by gossip, much sooner.
const DetectionTimeout = 30 * time.Second

// Detector is the state of a failure detector besides the roster. It is a value: its methods return the next one.
type Detector struct {
	unseen   map[uint64]unseenProcess // by member: registered processes that gossip has not shown
	joined   bool                     // a quorum has been alive
	isolated bool                     // no quorum was alive when last observed
	rejoined time.Time                // when this member was last isolated
}

type unseenProcess struct {
	boot  uint64
	since time.Time
}

// Observe updates whether this member is isolated: gossip shows no quorum alive, or the
// confirmation of a read took an election timeout or longer.
func (d Detector) Observe(quorum bool, confirmed, election time.Duration, now time.Time) Detector {
	if d.joined && d.isolated && quorum || confirmed >= election {
		d.rejoined = now
	}
	d.joined, d.isolated = d.joined || quorum, !quorum
	return d
}

// Restart forgets since when processes are unseen: this member does not lead.
func (d Detector) Restart() Detector {
	d.unseen = nil
	return d
}

// holdOff returns for how long no process may be reported dead.
func (d Detector) holdOff(now time.Time) time.Duration {
	if d.isolated {
		return DetectionTimeout
	}
	return max(0, d.rejoined.Add(DetectionTimeout).Sub(now))
}

// Evaluate returns the reports that are due, and when to evaluate again if nothing
// changes; 0: never. While a member is not alive there is a next time: its process may
// still be registered by a command in flight, after gossip's last event about it.
func (d Detector) Evaluate(held []fact.MemberLiveness, s *Snapshot, now time.Time) (due []fact.LivenessReport, again time.Duration, next Detector) {
	members := make(map[uint64]Member, len(s.Members))
	for _, m := range s.Members {
		members[m.ID] = m
	}
	next = d
	next.unseen = make(map[uint64]unseenProcess)
	for _, h := range held {
		m, isMember := members[h.Member]
		if !isMember {
			continue
		}
		if m.Liveness != Alive && again == 0 {
			again = DetectionTimeout
		}
		boot := m.boot
		if m.Liveness != Alive && !(m.Liveness == dead && m.boot >= h.Boot) {
			boot = h.Boot
			u := d.unseen[h.Member]
			if u.boot != h.Boot {
				u = unseenProcess{h.Boot, now}
			}
			if !d.isolated { // else its time starts again afterwards
				next.unseen[h.Member] = u
			}
			if left := u.since.Add(DetectionTimeout).Sub(now); left > 0 {
				again = min(again, left)
				continue
			}
		}
		if boot < h.Boot || h.Silent != (m.Liveness == Alive) {
			continue
		}
		if left := d.holdOff(now); left > 0 && m.Liveness != Alive {
			again = min(again, left)
			continue
		}
		due = append(due, fact.LivenessReport{Member: h.Member, Boot: boot, Alive: m.Liveness == Alive})
	}
	return due, again, next
}
