package cluster

import (
	"context"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// What callers ask of the loop. Each question is posted to it and answered
// from its goroutine.

// Submit sends a command on its way. It never blocks; everything further comes
// through the call, which may fail before Submit returns. Urgent commands go
// first and are not counted against the limit.
func (m *Member) Submit(command []byte, call Call, urgent bool) {
	m.mailbox.post(event{
		run:  func(c *core.Core) { c.Submit(command, call, urgent) },
		lost: func() { call.Fail(m.stopped()) },
	})
}

// Cancel asks to take a command back that nobody has been handed yet. The call
// is told what came of it; when the member stops, it hears of that as a call
// that was submitted, and not once more.
func (m *Member) Cancel(call Call) {
	m.mailbox.post(event{run: func(c *core.Core) { c.Cancel(call) }})
}

// Read runs run on the loop's goroutine, at a state at least as new as all that
// was acknowledged before. It blocks until then. After an error run may still
// be running, so what it writes to must not be looked at.
func (m *Member) Read(ctx context.Context, run func(Machine)) error {
	return m.look(ctx, run, (*core.Core).Read)
}

// Look is Read at the state that this member has, however old it is. No other
// member is asked.
func (m *Member) Look(ctx context.Context, run func(Machine)) error {
	return m.look(ctx, run, (*core.Core).Look)
}

func (m *Member) look(ctx context.Context, run func(Machine), read func(*core.Core, core.Read) error) error {
	r := &pendingRead{ctx: ctx, run: run, done: make(chan error, 1)}
	m.mailbox.post(event{run: func(c *core.Core) {
		if err := read(c, r); err != nil {
			r.done <- err
		}
	}})
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-m.done:
		return m.stopped()
	}
}

type pendingRead struct {
	ctx  context.Context
	run  func(Machine)
	done chan error
}

// Ended reports that nobody waits for the read any more.
func (r *pendingRead) Ended() bool { return r.ctx.Err() != nil }

func (r *pendingRead) Run(machine Machine) {
	r.run(machine)
	r.done <- nil
}

// Reincarnate goes on as a new process would, because the group has forgotten
// the old one: every call under way fails, and later ones run under a new
// incarnation. register makes the command that registers it, on the loop's
// goroutine, and is not called when this has been done already.
func (m *Member) Reincarnate(old wire.ID, register func() ([]byte, Call)) {
	m.mailbox.post(event{run: func(c *core.Core) {
		if c.Incarnation() != old {
			return // many calls find out; the first has seen to it
		}
		command, call := register()
		c.Reincarnate(randomID(), command, call)
	}})
}

// Transfer hands leadership to a member, or to the one that is furthest when
// to is 0. It blocks until another leader is known or ctx ends.
func (m *Member) Transfer(ctx context.Context, to uint64) error {
	done := make(chan error, 1)
	m.mailbox.post(event{run: func(c *core.Core) { c.Transfer(to, done) }})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-m.done:
		return m.stopped()
	}
}

// Majority reports whether a majority of the voters seems to answer, this
// member included. It is what gossip says, and never blocks.
func (m *Member) Majority() bool {
	voters, alive := 0, 0
	for _, p := range m.Status().Members {
		if p.Voter {
			voters++
			if p.Alive {
				alive++
			}
		}
	}
	return alive > voters/2
}

// Leave tells the others that this process goes on purpose, so that they need
// not find out. It blocks for a moment.
func (m *Member) Leave() { m.gossip.leave() }
