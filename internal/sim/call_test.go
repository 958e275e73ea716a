package sim

import (
	"errors"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// simCall is one call, and how it has to be answered: at most two outcomes, or
// one failure.
type simCall struct {
	program *program
	on      func(wire.Ticket, *wire.Reply, bool)
	queued  bool
	over    bool
	found   *wire.Reply                              // by Recheck
	recheck func(*observed, wire.Ticket) *wire.Reply // nil: there is one outcome only
	unsent  func()
	op      *operation // nil: nobody asks what came of it
}

func (c *simCall) Deliver(t wire.Ticket, r *wire.Reply, more bool) {
	p := c.program
	switch {
	case p.over:
		p.w.fail("member %d: an outcome for a process that has died", p.n)
	case c.over || c.queued && more:
		p.w.fail("member %d: ticket %d has one outcome too many: %v", p.n, t.Seq, r)
	case r == c.found:
		p.w.history.rechecked(p.life, t, r)
	default:
		p.w.history.vouch(p.life, t, r)
	}
	if r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
		p.forgotten(t.Incarnation)
	}
	if c.op != nil {
		p.w.outside.replied(c.op, t, r, more, r == c.found)
	}
	c.queued = more
	if !more {
		c.ends()
	}
	c.on(t, r, more)
}

func (c *simCall) ends() {
	c.over = true
	c.program.waiting--
}

func (c *simCall) Fail(err error) {
	if c.over {
		c.program.w.fail("member %d: a call fails that is over: %v", c.program.n, err)
	}
	if !errors.Is(err, core.ErrUnregistered) && !errors.Is(err, core.ErrBusy) {
		c.program.w.fail("member %d: a call fails: %v", c.program.n, err)
	}
	if c.op != nil {
		c.op.undone = errors.Is(err, core.ErrBusy)
	}
	c.ends()
	c.on(wire.Ticket{}, nil, false)
}

func (c *simCall) Cancelled(sent bool) {
	if sent || c.over {
		return
	}
	if c.op != nil {
		c.op.undone = true
	}
	c.ends()
	c.unsent()
}

func (c *simCall) Recheck(m wire.Rechecker, t wire.Ticket) *wire.Reply {
	if c.recheck == nil {
		c.program.w.fail("member %d: a call that awaits nothing is asked to look for it", c.program.n)
	}
	c.found = c.recheck(m.(*observed), t)
	return c.found
}

// read asks for a linearizable read: it has to see all that anybody has been
// told before.
func (p *program) read() {
	if p.w.chance(0.1) {
		p.linearizable(func(*machine.Machine) {})
	}
}

func (p *program) linearizable(look func(*machine.Machine)) {
	p.waiting++
	r := &simRead{p, p.w.history.answered, look}
	p.at(0, func() {
		p.event(func(c *core.Core) {
			if err := c.Read(r); err != nil {
				p.w.fail("member %d: a read: %v", p.n, err)
			}
		})
	})
}

type simRead struct {
	program *program
	atLeast uint64
	look    func(*machine.Machine)
}

func (r *simRead) Ended() bool { return r.program.over }

func (r *simRead) Run(m core.Machine) {
	r.program.waiting--
	if at := r.program.core.Status().Applied; at < r.atLeast {
		r.program.w.fail("member %d reads the state of entry %d, and %d was acknowledged before", r.program.n, at, r.atLeast)
	}
	r.look(m.(*observed).Machine)
}
