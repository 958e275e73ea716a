package replica

import "github.com/conclave-go/conclave/cluster/core"

// event is run by the loop. What posts events is bounded: callers wait for the outcome of their
// event, Submit refuses calls beyond MaxCalls, and each release or withdrawal follows
// a call that was within that limit.
type event struct {
	run  func(*core.Core)
	lost func() // called instead if the loop has stopped; may be nil
}

// post has the loop run an event. It never blocks.
func (r *Requests) post(e event) {
	if !r.mailbox.Post(e) {
		lose([]event{e})
	}
}

// lose calls lost for each event.
func lose(events []event) {
	for _, e := range events {
		if e.lost != nil {
			e.lost()
		}
	}
}
