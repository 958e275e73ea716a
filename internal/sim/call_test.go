package sim

import (
	"errors"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// simCall is one call. It must receive at most two outcomes, or one failure.
type simCall struct {
	program   *program
	onOutcome func(wire.Ticket, *wire.Reply, bool)
	queued    bool
	finished  bool
	rechecked *wire.Reply                                   // the reply that Recheck returned
	recheck   func(wire.Rechecker, wire.Ticket) *wire.Reply // nil: the call has one outcome only
	onUnsent  func()
	op        *operation // nil: not part of the client history
}

func (c *simCall) Deliver(t wire.Ticket, r *wire.Reply, more bool) {
	p := c.program
	if p.terminated && (p.tainted || p.sim.history.seal != nil) {
		return
	}
	if t.Seq == 0 {
		c.unsent(t, r)
		return
	}
	switch {
	case p.terminated:
		p.sim.fail("member %d: an outcome for a terminated process", p.n)
	case c.finished || c.queued && more:
		p.sim.fail("member %d: ticket %d has one outcome too many: %v", p.n, t.Seq, r)
	case r == c.rechecked:
		p.sim.history.checkRecheck(p.process, t, r)
	default:
		p.sim.history.checkOutcome(p.process, t, r)
	}
	if r.GetCode() == wire.Code_GROUP_DELETED {
		c.groupDeleted()
		return
	}
	if r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
		p.registrationExpired(t.Incarnation)
	}
	if c.op != nil {
		p.sim.clients.replied(c.op, t, r, more, r == c.rechecked)
	}
	c.queued = more
	if !more {
		c.finish()
	}
	c.onOutcome(t, r, more)
}

// unsent ends a call that was not sent, since this process is not registered.
func (c *simCall) unsent(t wire.Ticket, r *wire.Reply) {
	if c.finished {
		c.program.sim.fail("member %d: a finished call was not sent", c.program.n)
	}
	if r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
		c.program.registrationExpired(t.Incarnation)
	}
	if c.op != nil {
		c.op.noEffect = true
	}
	c.finish()
	c.onOutcome(wire.Ticket{}, nil, false)
}

func (c *simCall) finish() {
	c.finished = true
	c.program.inFlight--
}

func (c *simCall) Fail(err error) {
	if c.finished {
		c.program.sim.fail("member %d: a finished call fails: %v", c.program.n, err)
	}
	if !errors.Is(err, tickets.ErrUnregistered) && !errors.Is(err, tickets.ErrBusy) {
		c.program.sim.fail("member %d: a call fails: %v", c.program.n, err)
	}
	if c.op != nil {
		c.op.noEffect = errors.Is(err, tickets.ErrBusy)
	}
	c.finish()
	c.onOutcome(wire.Ticket{}, nil, false)
}

func (c *simCall) Cancelled(sent bool) {
	if sent || c.finished {
		return
	}
	if c.op != nil {
		c.op.noEffect = true
	}
	c.finish()
	c.onUnsent()
}

func (c *simCall) Recheck(m wire.Rechecker, t wire.Ticket) *wire.Reply {
	if c.recheck == nil {
		c.program.sim.fail("member %d: Recheck of a call that cannot wait", c.program.n)
	}
	c.rechecked = c.recheck(m, t)
	return c.rechecked
}

// maybeRead sometimes issues a linearizable read, which must see all outcomes that
// any program received before.
func (p *program) maybeRead() {
	if p.sim.chance(0.1) {
		p.query(machine.IndexQuery{}, func(any) {})
	}
}

// query issues a linearizable read, whose answer on gets.
func (p *program) query(q machine.Query, on func(answer any)) {
	p.inFlight++
	r := &simRead{program: p, atLeast: p.sim.history.acknowledged, query: q, on: on}
	p.after(0, func() { p.gateway.read(r) })
}

// simRead is a linearizable read. The state that it sees must include entry atLeast.
type simRead struct {
	program *program
	atLeast uint64
	query   machine.Query
	on      func(answer any)
}

func (r *simRead) Ended() bool { return r.program.terminated }

func (r *simRead) Run(m core.Machine) {
	r.answered(r.evaluate(r.program.process, m))
}

// evaluate answers the read from the state of a member.
func (r *simRead) evaluate(by *process, m core.Machine) any {
	if at := by.core.Status().Applied; at < r.atLeast {
		by.sim.fail("member %d reads the state of entry %d, but entry %d was acknowledged before", by.n, at, r.atLeast)
	}
	return machine.Ask[any](m.(*observed).Machine, r.query)
}

func (r *simRead) answered(a any) {
	r.program.inFlight--
	r.on(a)
}
