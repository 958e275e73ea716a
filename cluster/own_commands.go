package cluster

import (
	"context"

	"github.com/conclave-go/conclave/internal/wire"
)

// ownCall is a command that the cluster itself submits. Of the outcome it reads the
// code only.
type ownCall struct{ done chan ownOutcome }

type ownOutcome struct {
	reply *wire.Reply
	err   error
}

func (c *ownCall) Deliver(_ wire.Ticket, r *wire.Reply, _ bool)        { c.done <- ownOutcome{reply: r} }
func (c *ownCall) Fail(err error)                                      { c.done <- ownOutcome{err: err} }
func (c *ownCall) Cancelled(bool)                                      {}
func (c *ownCall) Recheck(wire.Rechecker, wire.Ticket) (r *wire.Reply) { return nil }

// execute submits a command and blocks until its outcome is known or ctx is done; in
// the second case the command may still take effect.
func (m *Member) execute(ctx context.Context, command []byte) (*wire.Reply, error) {
	c := &ownCall{done: make(chan ownOutcome, 1)}
	m.Submit(command, c, true)
	select {
	case o := <-c.done:
		return o.reply, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
