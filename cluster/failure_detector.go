package cluster

import (
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// The failure detector. The leader compares what the group holds of each member's
// process with its own roster, and submits a report for each difference: a report of a
// death ends the sessions that depend on the member's liveness.
//
// Deaths are not believed while this member is isolated, nor for a while afterwards:
// its gossip takes longer than raft to find the others again, and shows dead until then
// what is alive. That the leader has a quorum is confirmed by a linearizable read
// before each round of reports.

// detectorPatience is how long gossip may take to show a process that the group knows
// before that counts as dead, and to find the others again after this member was
// isolated. A process that gossip has shown is declared dead by gossip, and much sooner.
const detectorPatience = 30 * time.Second

// detector is what the failure detector knows besides the roster. It is a value:
// judge and observe return the next one.
type detector struct {
	unseen   map[uint64]unseenProcess // members of whose registered process gossip shows nothing
	isolated bool                     // no quorum was alive when last observed
	rejoined time.Time                // when this member was last isolated
}

type unseenProcess struct {
	boot  uint64
	since time.Time
}

// observe notes whether this member is isolated: gossip shows no quorum alive, or a
// quorum took longer than an election timeout to confirm a read.
func (d detector) observe(quorum bool, confirmed, election time.Duration, now time.Time) detector {
	if d.isolated && quorum || confirmed >= election {
		d.rejoined = now
	}
	d.isolated = !quorum
	return d
}

// distrust is for how long deaths are not believed. A leader knows that most voters
// cannot be dead.
func (d detector) distrust(now time.Time) time.Duration {
	if d.isolated {
		return detectorPatience
	}
	return max(0, d.rejoined.Add(detectorPatience).Sub(now))
}

// judge works out the reports that are due, and after what time to judge again if
// nothing changes; 0: never. As long as a member is not alive there is a next time: its
// process may still register by a command that was under way, when gossip has nothing
// more to show of it.
func (d detector) judge(held []wire.MemberLiveness, roster *rosterSnapshot, now time.Time) (due []wire.LivenessReport, again time.Duration, next detector) {
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
			again = detectorPatience
		}
		boot := m.boot
		if m.liveness != alive && !(m.liveness == dead && m.boot >= h.Boot) {
			boot = h.Boot
			u := d.unseen[h.Member]
			if u.boot != h.Boot {
				u = unseenProcess{h.Boot, now}
			}
			next.unseen[h.Member] = u
			if left := u.since.Add(detectorPatience).Sub(now); left > 0 {
				again = min(again, left)
				continue
			}
		}
		if boot < h.Boot || h.Silent != (m.liveness == alive) {
			continue
		}
		if left := d.distrust(now); left > 0 && m.liveness != alive {
			again = min(again, left)
			continue
		}
		due = append(due, wire.LivenessReport{Member: h.Member, Boot: boot, Alive: m.liveness == alive})
	}
	return due, again, next
}

// detect runs the failure detector until the member ends. Each report is answered
// before the next is submitted.
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

// detectOnce judges once if this member leads, and submits what is due.
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
		return d, detectorPatience
	}
	now := time.Now()
	roster := m.roster.snapshot()
	d = d.observe(roster.hasQuorum(), now.Sub(asked), m.cfg.Election, now)
	due, again, d := d.judge(held, roster, now)
	for _, r := range due {
		r.Term = before.Term
		if !m.report(r) {
			again = detectorPatience
		}
	}
	return d, again
}

// mayReport reports whether this member leads and its process is registered: the
// registration must be its first command.
func (m *Member) mayReport(s *Status) bool { return s.Leader == m.identity.member && s.registered }

// report submits a report, and reports whether the group has applied it.
func (m *Member) report(r wire.LivenessReport) bool {
	m.log.Info("liveness changed", "member", wire.MemberID(r.Member), "alive", r.Alive)
	reply, err := m.execute(m.lifetime, m.cfg.Commands.ReportLiveness(r))
	return err == nil && reply.GetCode() == wire.Code_OK
}
