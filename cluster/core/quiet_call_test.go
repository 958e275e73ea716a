package core

import "github.com/conclave-go/conclave/internal/wire"

// quietCall only notes how it ended. Calls differ by their addresses.
type quietCall struct {
	failed    error
	fails     int
	cancelled []bool // sent?
	unsent    []wire.Code
}

func (c *quietCall) Deliver(t wire.Ticket, r *wire.Reply, _ bool) {
	if t.Seq == 0 {
		c.unsent = append(c.unsent, r.GetCode())
	}
}
func (c *quietCall) Cancelled(sent bool)                             { c.cancelled = append(c.cancelled, sent) }
func (c *quietCall) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }
func (c *quietCall) Fail(err error)                                  { c.failed, c.fails = err, c.fails+1 }
