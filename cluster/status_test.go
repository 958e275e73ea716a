package cluster

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/internal/wire"
)

// noting is a call that takes the member's status when its outcome is delivered.
type statusCall struct {
	*trackedCall
	member *Member
	seen   Status
}

func (c *statusCall) Deliver(t wire.Ticket, r *wire.Reply, more bool) {
	c.seen = c.member.Status()
	c.trackedCall.Deliver(t, r, more)
}

// A status taken when an outcome is delivered is as new as the outcome.
func TestStatus_AsNewAsNotifications(t *testing.T) {
	m := start(t, alone(t))
	defer m.Stop()
	call := &statusCall{trackedCall: newTrackedCall(), member: m}
	m.Submit(len(renewal), encoded(renewal), call, true)
	<-call.done
	if err := m.ReadStale(t.Context(), func(Machine) {}); err != nil { // the loop is done with it then
		t.Fatal(err)
	}
	if now := m.Status(); call.seen.Applied != now.Applied || call.seen.Commit < call.seen.Applied || now.Applied == 0 {
		t.Fatalf("status at delivery %+v, afterwards %+v", call.seen, now)
	}
}

// The loaded machine is reported before anything else.
func TestRestored_ReportedFirst(t *testing.T) {
	var reported []string // by the loop's goroutine, which has ended when it is read
	cfg := alone(t)
	cfg.Restored = func(Machine) { reported = append(reported, "restored") }
	cfg.LeaderChanged = func(uint64, uint64) { reported = append(reported, "leader") }
	m := start(t, cfg)
	looked := false
	if err := m.ReadStale(t.Context(), func(m Machine) { looked = m != nil }); err != nil || !looked {
		t.Fatal(looked, err)
	}
	if err := m.Read(t.Context(), func(Machine) {}); err != nil { // there is a leader then
		t.Fatal(err)
	}
	m.Stop()
	if len(reported) < 2 || reported[0] != "restored" || slices.Contains(reported[1:], "restored") {
		t.Fatalf("reported %q", reported)
	}
}

// The loss of the quorum is logged once, and so is its return; before the quorum was
// first there, nothing is.
func TestQuorumLog(t *testing.T) {
	roster := func(quorum bool) *roster.Snapshot {
		s := &roster.Snapshot{Members: []roster.Member{{ID: 1, Voter: true, Liveness: roster.Alive}, {ID: 2, Voter: true}, {ID: 3, Voter: true}}}
		if quorum {
			s.Members[1].Liveness = roster.Alive
		}
		return s
	}
	var out strings.Builder
	logger := slog.New(slog.NewTextHandler(&out, nil))
	var q quorumLog
	for _, quorum := range []bool{false, false, true, true, false, false, true, false} {
		q.note(logger, roster(quorum))
	}
	if lost, back := strings.Count(out.String(), "quorum lost"), strings.Count(out.String(), "quorum regained"); lost != 2 || back != 1 {
		t.Errorf("lost %d times, regained %d times:\n%s", lost, back, out.String())
	}
}
