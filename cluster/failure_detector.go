package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/internal/fact"
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

// detect runs the failure detector until the member stops. It submits one report at a
// time.
func (m *Member) detect() {
	var d roster.Detector
	var log quorumLog
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-m.roster.Changed:
		case <-m.replica.Leadership:
		case <-timer.C:
		case <-m.lifetime.Done():
			return
		}
		timer.Stop()
		log.note(m.log, m.roster.Snapshot())
		again := time.Duration(0)
		if d, again = m.detectOnce(d); again > 0 {
			timer.Reset(again)
		}
	}
}

// detectOnce evaluates once if this member leads, and submits the reports that are due.
func (m *Member) detectOnce(d roster.Detector) (next roster.Detector, again time.Duration) {
	d = d.Observe(m.roster.Snapshot().HasQuorum(), 0, m.cfg.Election, time.Now())
	before := m.replica.Status()
	if !m.mayReport(before) {
		return d.Restart(), 0
	}
	var held []fact.MemberLiveness
	asked := time.Now()
	err := m.replica.Read(m.lifetime, func(machine Machine) { held = machine.Liveness() })
	if status := m.replica.Status(); err != nil || !m.mayReport(status) || status.Term != before.Term {
		return d, roster.DetectionTimeout
	}
	now := time.Now()
	seen := m.roster.Snapshot()
	d = d.Observe(seen.HasQuorum(), now.Sub(asked), m.cfg.Election, now)
	due, again, d := d.Evaluate(held, seen, now)
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
func withoutConnected(due []fact.LivenessReport, connected func(member uint64) bool) []fact.LivenessReport {
	return slices.DeleteFunc(due, func(r fact.LivenessReport) bool { return !r.Alive && connected(r.Member) })
}

func (m *Member) isConnected(member uint64) bool {
	_, ok := m.port.Connected(member)
	return ok
}

// mayReport reports whether this member leads and its process is registered: the
// registration must be its first command.
func (m *Member) mayReport(s *replica.Status) bool {
	return s.Leader == m.identity.Member && s.Registered
}

// report submits a report and returns when to evaluate again because it had no effect;
// 0: it had one. A report that comes soon after a process's last renewal has none, and
// the group says for how long that remains so: the process may have failed since.
func (m *Member) report(r fact.LivenessReport) (again time.Duration) {
	reply, err := m.replica.Execute(m.lifetime, m.cfg.Commands.ReportLiveness(r))
	switch {
	case err != nil || reply.GetCode() != wire.Code_OK:
		return roster.DetectionTimeout
	case reply.GetDelay() > 0:
		return time.Duration(reply.GetDelay())
	}
	m.log.Info("liveness changed", "member", wire.MemberID(r.Member), "alive", r.Alive)
	return 0
}
