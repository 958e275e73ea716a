package cluster

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// noting is a call that looks at the member's status when its outcome comes.
type noting struct {
	*ending
	member *Member
	seen   Status
}

func (c *noting) Deliver(t wire.Ticket, r *wire.Reply, more bool) {
	c.seen = c.member.Status()
	c.ending.Deliver(t, r, more)
}

// Whoever is told of something finds a status that knows of it.
func TestStatusKnowsWhatIsTold(t *testing.T) {
	m := start(t, alone(t))
	defer m.Stop()
	call := &noting{ending: newEnding(), member: m}
	m.Submit(renewal, call, true)
	<-call.over
	if err := m.Look(t.Context(), func(Machine) {}); err != nil { // the loop is done with it then
		t.Fatal(err)
	}
	if now := m.Status(); call.seen.Applied != now.Applied || call.seen.Commit < call.seen.Applied || now.Applied == 0 {
		t.Fatalf("when it was told %+v, and then %+v", call.seen, now)
	}
}
