package replica

import (
	"testing"

	"github.com/conclave-go/conclave/cluster/core"
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
