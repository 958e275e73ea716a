package replica

import (
	"context"

	"github.com/conclave-go/conclave/internal/wire"
)

// ownCall is a call of the cluster itself: the removal of this member, or a report of
// the failure detector.
type ownCall struct{ done chan ownOutcome }

type ownOutcome struct {
	reply *wire.Reply
	err   error
}

func (c *ownCall) Deliver(_ wire.Ticket, r *wire.Reply, _ bool)        { c.done <- ownOutcome{reply: r} }
func (c *ownCall) Fail(err error)                                      { c.done <- ownOutcome{err: err} }
func (c *ownCall) Cancelled(bool)                                      {}
func (c *ownCall) Recheck(wire.Rechecker, wire.Ticket) (r *wire.Reply) { return nil }

// Execute submits a command and blocks until it has an outcome or ctx is done. After
// ctx's error the command may still take effect.
func (r *Requests) Execute(ctx context.Context, command []byte) (*wire.Reply, error) {
	c := &ownCall{done: make(chan ownOutcome, 1)}
	r.Submit(len(command), func() []byte { return command }, c, true)
	select {
	case o := <-c.done:
		return o.reply, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
