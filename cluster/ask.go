package cluster

import (
	"context"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// Submit submits a command. It never blocks; the call learns everything further, and
// may fail before Submit returns. Urgent commands go first and are not counted against
// Config.MaxCalls.
func (m *Member) Submit(command []byte, call Call, urgent bool) {
	m.mailbox.post(event{
		run:  func(c *core.Core) { c.Submit(command, call, urgent) },
		lost: func() { call.Fail(m.stopped()) },
	})
}

// Cancel withdraws a call whose command has not left this member yet. The call's
// Cancelled reports whether it has, unless the member stops first: then Fail is all.
func (m *Member) Cancel(call Call) {
	m.mailbox.post(event{run: func(c *core.Core) { c.Cancel(call) }})
}

// Read calls run on the loop's goroutine with a state that is at least as new as
// everything acknowledged before. It blocks until then. After an error run may still
// be running, so what it writes to must not be read.
func (m *Member) Read(ctx context.Context, run func(Machine)) error {
	return m.read(ctx, run, (*core.Core).Read)
}

// Look is Read with the state that this member has, however old it is. It needs no
// quorum.
func (m *Member) Look(ctx context.Context, run func(Machine)) error {
	return m.read(ctx, run, (*core.Core).Look)
}

func (m *Member) read(ctx context.Context, run func(Machine), read func(*core.Core, core.Read) error) error {
	r := &pendingRead{ctx: ctx, run: run, done: make(chan error, 1)}
	m.mailbox.post(event{run: func(c *core.Core) {
		if err := read(c, r); err != nil {
			r.done <- err
		}
	}})
	return m.await(ctx, r.done)
}

// await waits for an answer of the loop.
func (m *Member) await(ctx context.Context, answer <-chan error) error {
	select {
	case err := <-answer:
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

// Ended implements core.Read.
func (r *pendingRead) Ended() bool { return r.ctx.Err() != nil }

// Run implements core.Read.
func (r *pendingRead) Run(machine Machine) {
	r.run(machine)
	r.done <- nil
}

// Reincarnate continues under a new incarnation after the registration of the old one
// has expired: every pending call fails, and later ones run under the new incarnation.
// register returns the command that registers it; it runs on the loop's goroutine, and
// not at all if old is not the incarnation any more.
func (m *Member) Reincarnate(old wire.ID, register func() ([]byte, Call)) {
	m.mailbox.post(event{run: func(c *core.Core) {
		if c.Incarnation() != old {
			return // many calls find out; the first has seen to it
		}
		command, call := register()
		c.Reincarnate(randomID(), command, call)
	}})
}

// TransferLeadership transfers leadership of the group to a voter, or to the most
// up-to-date one when to is 0. A member that does not lead asks the leader. It blocks
// until another member leads, or to does; ErrNoSuccessor: the leader gave up. After
// ctx's error leadership may still move; ErrNoLeader: ctx was done before a leader was
// known, so it does not.
func (m *Member) TransferLeadership(ctx context.Context, to uint64) error {
	return m.transfer(ctx, func(c *core.Core, done chan<- error) { c.Transfer(to, done) })
}

// StepDown transfers leadership away from this member, and returns ErrNotLeader if it
// does not lead.
func (m *Member) StepDown(ctx context.Context) error {
	return m.transfer(ctx, (*core.Core).StepDown)
}

func (m *Member) transfer(ctx context.Context, begin func(*core.Core, chan<- error)) error {
	done := make(chan error, 1)
	m.mailbox.post(event{run: func(c *core.Core) { begin(c, done) }})
	err := m.await(ctx, done)
	if err == nil || ctx.Err() == nil {
		return err
	}
	asked := make(chan bool, 1)
	m.mailbox.post(event{run: func(c *core.Core) { asked <- c.AbandonTransfer(done) }})
	select {
	case asked := <-asked:
		if !asked {
			return ErrNoLeader
		}
	case <-m.done:
	}
	return err
}

// HasQuorum reports whether gossip shows a majority of the voters alive, this member
// included. It never blocks.
func (m *Member) HasQuorum() bool { return m.roster.snapshot().hasQuorum() }

// AnnounceShutdown tells the others by gossip that this process ends on purpose, so
// that they need not detect it. It blocks for a fraction of a second.
func (m *Member) AnnounceShutdown() { m.gossip.announceShutdown() }
