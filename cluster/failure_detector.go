package cluster

import (
	"cmp"
	"context"
	"log/slog"
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

// failureDetector is owned by the goroutine of run.
type failureDetector struct {
	self       uint64
	election   time.Duration
	group      group
	leadership <-chan struct{} // the replica's Leadership
	roster     *roster.Roster
	connected  func(member uint64) (process wire.ID, ok bool) // by the transport
	commands   Commands
	log        *slog.Logger
	lifetime   context.Context

	detector roster.Detector
	quorum   *quorumLog // nil: of a further group, whose voters are those of the default one
}

// run detects until the member stops. It submits one report at a time.
func (f *failureDetector) run() {
	changed, stop := f.roster.Watch()
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-changed:
		case <-f.leadership:
		case <-timer.C:
		case <-f.lifetime.Done():
			return
		}
		timer.Stop()
		if f.quorum != nil {
			f.quorum.note(f.log, f.roster.Snapshot())
		}
		if again := f.detectOnce(); again > 0 {
			timer.Reset(again)
		}
	}
}

// detectOnce evaluates once if this member leads, and submits the reports that are due.
func (f *failureDetector) detectOnce() (again time.Duration) {
	f.detector = f.detector.Observe(f.roster.Snapshot().HasQuorum(), 0, f.election, time.Now())
	before := f.group.Status()
	if !f.mayReport(before) {
		f.detector = f.detector.Restart()
		return 0
	}
	var held []fact.MemberLiveness
	asked := time.Now()
	err := f.group.Read(f.lifetime, func(machine Machine) { held = machine.Liveness() })
	if status := f.group.Status(); err != nil || !f.mayReport(status) || status.Term != before.Term {
		return roster.DetectionTimeout
	}
	now := time.Now()
	seen := f.roster.Snapshot()
	f.detector = f.detector.Observe(seen.HasQuorum(), now.Sub(asked), f.election, now)
	due, again, next := f.detector.Evaluate(held, seen, now)
	f.detector = next
	reports := withoutConnected(due, f.isConnected)
	if len(reports) < len(due) {
		again = min(again, connectedRetry)
	}
	for _, r := range reports {
		r.Term = before.Term
		if left := f.report(r); left > 0 {
			again = cmp.Or(min(again, left), left)
		}
	}
	return again
}

// connectedRetry is the pause before a death is evaluated again that a live connection
// contradicts. Such a connection breaks soon, or gossip corrects itself soon.
const connectedRetry = time.Second

// withoutConnected drops the deaths of members that have a live connection with this one,
// which has proved their keys: they outweigh gossip.
func withoutConnected(due []fact.LivenessReport, connected func(member uint64) bool) []fact.LivenessReport {
	return slices.DeleteFunc(due, func(r fact.LivenessReport) bool { return !r.Alive && connected(r.Member) })
}

func (f *failureDetector) isConnected(member uint64) bool {
	_, ok := f.connected(member)
	return ok
}

// mayReport reports whether this member leads and its process is registered: the
// registration must be its first command.
func (f *failureDetector) mayReport(s *replica.Status) bool {
	return s.Leader == f.self && s.Registered
}

// report submits a report and returns when to evaluate again because it had no effect;
// 0: it had one. A report that comes soon after a process's last renewal has none, and
// the group says for how long that remains so: the process may have failed since.
func (f *failureDetector) report(r fact.LivenessReport) (again time.Duration) {
	reply, err := f.group.Execute(f.lifetime, f.commands.ReportLiveness(r))
	switch {
	case err != nil || reply.GetCode() != wire.Code_OK:
		return roster.DetectionTimeout
	case reply.GetDelay() > 0:
		return time.Duration(reply.GetDelay())
	}
	logLiveness(f.log, r.Member, r.Alive)
	return 0
}
