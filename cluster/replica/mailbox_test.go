package replica

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wait"
)

// An event that the loop does not run is lost once, also one that is posted after its end.
func TestPost_Lost(t *testing.T) {
	r := &Replica{received: newReceived(new(ReceivedBytes)), Requests: Requests{mailbox: wait.NewMailbox[event]()}}
	lost := 0
	e := event{run: func(*core.Core) { t.Error("run after the end") }, lost: func() { lost++ }}
	r.post(e)
	r.Abandon()
	r.post(e)
	r.post(event{run: e.run})
	if lost != 2 {
		t.Errorf("%d of 2 events lost", lost)
	}
}

// A call that is submitted when the member has stopped was not sent, and its error says so.
func TestSubmit_Stopped(t *testing.T) {
	r := start(t, alone())
	r.stop()
	for _, urgent := range []bool{true, false} {
		c := newTrackedCall()
		r.Submit(len(renewal), encoded(renewal), c, urgent)
		if err := c.wait(); !errors.As(err, new(*tickets.UnsentError)) || !errors.Is(err, ErrStopped) {
			t.Errorf("urgent %v: %T %v", urgent, err, err)
		}
	}
}
