package replica

import (
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// statusCall is a call that takes the replica's status when its outcome is delivered.
type statusCall struct {
	*trackedCall
	replica *Replica
	seen    *Status
}

func (c *statusCall) Deliver(t wire.Ticket, r *wire.Reply, more bool) {
	c.seen = c.replica.Status()
	c.trackedCall.Deliver(t, r, more)
}

// A status taken when an outcome is delivered is as new as the outcome.
func TestStatus_AsNewAsNotifications(t *testing.T) {
	r := start(t, alone())
	call := &statusCall{trackedCall: newTrackedCall(), replica: r.Replica}
	r.Submit(len(renewal), encoded(renewal), call, true)
	<-call.done
	if err := r.ReadStale(t.Context(), func(Machine) {}); err != nil { // the loop is done with it then
		t.Fatal(err)
	}
	if now := r.Status(); call.seen.Applied != now.Applied || call.seen.Commit < call.seen.Applied || now.Applied == 0 {
		t.Fatalf("status at delivery %+v, afterwards %+v", call.seen, now)
	}
}

// The loaded machine is reported before anything else.
func TestRestored_ReportedFirst(t *testing.T) {
	var reported []string // by the loop's goroutine, which has ended when it is read
	cfg := alone()
	cfg.Restored = func(Machine) { reported = append(reported, "restored") }
	cfg.LeaderChanged = func(uint64, uint64) { reported = append(reported, "leader") }
	r := start(t, cfg)
	looked := false
	if err := r.ReadStale(t.Context(), func(m Machine) { looked = m != nil }); err != nil || !looked {
		t.Fatal(looked, err)
	}
	if err := r.Read(t.Context(), func(Machine) {}); err != nil { // there is a leader then
		t.Fatal(err)
	}
	r.stop()
	if len(reported) < 2 || reported[0] != "restored" || slices.Contains(reported[1:], "restored") {
		t.Fatalf("reported %q", reported)
	}
}
