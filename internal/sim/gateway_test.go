package sim

import (
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// gateway is how a program reaches its group: through the core of its own member, or as a
// client over a connection to a member.
type gateway interface {
	submit(command []byte, c *simCall, urgent bool)
	cancel(*simCall)
	renew(on func(*wire.Reply)) // on gets the answer, or nil if there will be none
	read(*simRead)
	// reregister replaces the incarnation whose registration has expired, unless that is
	// done.
	reregister(expired wire.ID)
	level() uint32
	connected() bool
}

// ownMember is the gateway of a program whose process is a member.
type ownMember struct{ *process }

func (g ownMember) submit(command []byte, c *simCall, urgent bool) {
	g.post(func(to *core.Core) { to.Submit(command, c, urgent) })
}

func (g ownMember) cancel(c *simCall) { g.post(func(of *core.Core) { of.Cancel(c) }) }

func (g ownMember) renew(on func(*wire.Reply)) {
	g.program.submit(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}, true, on)
}

func (g ownMember) read(r *simRead) {
	g.post(func(c *core.Core) {
		if err := c.Read(r); err != nil {
			g.sim.fail("member %d: read: %v", g.n, err)
		}
	})
}

func (g ownMember) reregister(expired wire.ID) {
	p := g.program
	g.post(func(c *core.Core) {
		if c.Incarnation() != expired {
			return
		}
		g.sim.trace("the registration of member %d has expired", g.n)
		p.incarnation, p.registered = g.sim.newID(), false
		p.loseSessions()
		registration, call := p.registration()
		c.Reregister(p.incarnation, registration, call)
	})
}

func (g ownMember) level() uint32 {
	level, _ := g.core.Machine().Level()
	return level
}

func (g ownMember) connected() bool { return true }
