package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// The failure detector. The leader compares the liveness that the machine records of
// each member's process with its own roster, and submits a report for each difference.
// A report that a process is dead ends the sessions that depend on its liveness. It has no
// effect for some seconds after the process's last renewal, and is then repeated.
//
// No process is reported dead while this member is isolated, nor for detectionTimeout
// afterwards: gossip rejoins later than raft, and until then shows live members as dead.
// A process that starts is isolated too until gossip has reached a quorum for the first
// time, but gossip has then shown it no false deaths.
// A linearizable read before each round of reports confirms that the leader has a quorum.

// detectionTimeout bounds how long gossip takes to show a registered process, which
// counts as dead afterwards, and to rejoin after this member was isolated. A process
// that gossip has shown before is declared dead by gossip, much sooner.
const detectionTimeout = 30 * time.Second

// detector is the failure detector's state besides the roster. It is a value: evaluate
// and observe return the next one.
type detector struct {
	unseen   map[uint64]unseenProcess // by member: registered processes that gossip has not shown
	joined   bool                     // a quorum has been alive
	isolated bool                     // no quorum was alive when last observed
	rejoined time.Time                // when this member was last isolated
}

type unseenProcess struct {
	boot  uint64
	since time.Time
}

// observe updates whether this member is isolated: gossip shows no quorum alive, or the
// confirmation of a read took an election timeout or longer.
func (d detector) observe(quorum bool, confirmed, election time.Duration, now time.Time) detector {
	if d.joined && d.isolated && quorum || confirmed >= election {
		d.rejoined = now
	}
	d.joined, d.isolated = d.joined || quorum, !quorum
	return d
}

// holdOff returns for how long no process may be reported dead.
func (d detector) holdOff(now time.Time) time.Duration {
	if d.isolated {
		return detectionTimeout
	}
	return max(0, d.rejoined.Add(detectionTimeout).Sub(now))
}

// evaluate returns the reports that are due, and when to evaluate again if nothing
// changes; 0: never. While a member is not alive there is a next time: its process may
// still be registered by a command in flight, after gossip's last event about it.
func (d detector) evaluate(held []wire.MemberLiveness, roster *rosterSnapshot, now time.Time) (due []wire.LivenessReport, again time.Duration, next detector) {
	members := make(map[uint64]rosterMember, len(roster.members))
	for _, m := range roster.members {
		members[m.id] = m
	}
	next = d
	next.unseen = make(map[uint64]unseenProcess)
	for _, h := range held {
		m, isMember := members[h.Member]
		if !isMember {
			continue
		}
		if m.liveness != alive && again == 0 {
			again = detectionTimeout
		}
		boot := m.boot
		if m.liveness != alive && !(m.liveness == dead && m.boot >= h.Boot) {
			boot = h.Boot
			u := d.unseen[h.Member]
			if u.boot != h.Boot {
				u = unseenProcess{h.Boot, now}
			}
			if !d.isolated { // else its time starts again afterwards
				next.unseen[h.Member] = u
			}
			if left := u.since.Add(detectionTimeout).Sub(now); left > 0 {
				again = min(again, left)
				continue
			}
		}
		if boot < h.Boot || h.Silent != (m.liveness == alive) {
			continue
		}
		if left := d.holdOff(now); left > 0 && m.liveness != alive {
			again = min(again, left)
			continue
		}
		due = append(due, wire.LivenessReport{Member: h.Member, Boot: boot, Alive: m.liveness == alive})
	}
	return due, again, next
}

// detect runs the failure detector until the member stops. It submits one report at a
// time.
func (m *Member) detect() {
	var d detector
	var log quorumLog
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-m.roster.changed:
		case <-m.leadership:
		case <-timer.C:
		case <-m.lifetime.Done():
			return
		}
		timer.Stop()
		log.note(m.log, m.roster.snapshot())
		again := time.Duration(0)
		if d, again = m.detectOnce(d); again > 0 {
			timer.Reset(again)
		}
	}
}

// detectOnce evaluates once if this member leads, and submits the reports that are due.
func (m *Member) detectOnce(d detector) (next detector, again time.Duration) {
	d = d.observe(m.roster.snapshot().hasQuorum(), 0, m.cfg.Election, time.Now())
	before := m.status.Load()
	if !m.mayReport(before) {
		d.unseen = nil
		return d, 0
	}
	var held []wire.MemberLiveness
	asked := time.Now()
	err := m.Read(m.lifetime, func(machine Machine) { held = machine.Liveness() })
	if status := m.status.Load(); err != nil || !m.mayReport(status) || status.Term != before.Term {
		return d, detectionTimeout
	}
	now := time.Now()
	roster := m.roster.snapshot()
	d = d.observe(roster.hasQuorum(), now.Sub(asked), m.cfg.Election, now)
	due, again, d := d.evaluate(held, roster, now)
	reports := withoutConnected(due, m.isConnected)
	if len(reports) < len(due) {
		again = min(again, connectedRetry)
	}
	for _, r := range reports {
		r.Term = before.Term
		if left := m.report(r); left > 0 {
			again = cmp.Or(min(again, left), left)
		}
	}
	return d, again
}

// connectedRetry is the pause before a death is evaluated again that a live connection
// contradicts. Such a connection breaks soon, or gossip corrects itself soon.
const connectedRetry = time.Second

// withoutConnected drops the deaths of members that have a live connection with this one,
// which has proved their keys: they outweigh gossip.
func withoutConnected(due []wire.LivenessReport, connected func(member uint64) bool) []wire.LivenessReport {
	return slices.DeleteFunc(due, func(r wire.LivenessReport) bool { return !r.Alive && connected(r.Member) })
}

func (m *Member) isConnected(member uint64) bool {
	_, ok := m.port.Connected(member)
	return ok
}

// mayReport reports whether this member leads and its process is registered: the
// registration must be its first command.
func (m *Member) mayReport(s *Status) bool { return s.Leader == m.identity.Member && s.registered }

// report submits a report and returns when to evaluate again because it had no effect;
// 0: it had one. A report that comes soon after a process's last renewal has none, and
// the group says for how long that remains so: the process may have failed since.
func (m *Member) report(r wire.LivenessReport) (again time.Duration) {
	reply, err := m.execute(m.lifetime, m.cfg.Commands.ReportLiveness(r))
	switch {
	case err != nil || reply.GetCode() != wire.Code_OK:
		return detectionTimeout
	case reply.GetDelay() > 0:
		return time.Duration(reply.GetDelay())
	}
	m.log.Info("liveness changed", "member", wire.MemberID(r.Member), "alive", r.Alive)
	return 0
}
