package replica

import (
	"context"
	"sync/atomic"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/internal/metrics"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
)

// Requests is what other goroutines ask of a replica: commands, reads and leadership transfers. Each passes through the
// loop's mailbox. It may be used on any goroutine.
type Requests struct {
	mailbox  *wait.Mailbox[event]
	backlog  backlog
	refused  *metrics.Counter // Metrics.Refused
	lifetime context.Context  // of the member
	done     <-chan struct{}  // closed once everything has ended
	stopped  func() error     // why lifetime is done
}

// Submit submits a command of that size, which it has encoded unless the call is refused.
// It never blocks: call receives the outcome, or the failure, possibly before Submit
// returns. Urgent commands go before the others in every queue up to the log, and are not
// refused for Config.MaxCalls or MaxCallBytes.
func (r *Requests) Submit(size int, encode func() []byte, call Call, urgent bool) {
	switch {
	case urgent || r.backlog.reserve(size):
	case r.lifetime.Err() != nil:
		call.Fail(&tickets.UnsentError{Cause: r.stopped()})
		return
	default:
		r.refused.Add(1)
		call.Fail(tickets.ErrTooManyCalls)
		return
	}
	command := encode()
	r.post(event{
		run: func(c *core.Core) {
			c.Submit(command, call, urgent)
			if !urgent {
				r.backlog.submitted(size, c.Backlog())
			}
		},
		lost: func() { call.Fail(&tickets.UnsentError{Cause: r.stopped()}) },
	})
}

// Cancel withdraws a call whose command has not been sent. The call's Cancelled method
// reports whether it was, unless the member stops first: then only Fail is called.
func (r *Requests) Cancel(call Call) {
	r.post(event{run: func(c *core.Core) { c.Cancel(call) }})
}

// Read is a linearizable read: it calls run on the loop's goroutine with a state that
// includes every command acknowledged before, and blocks until run has returned. After
// an error run may still be running, so the caller must not read what it writes.
func (r *Requests) Read(ctx context.Context, run func(Machine)) error {
	return r.read(ctx, run, (*core.Core).Read)
}

// ReadStale is Read from this member's own state, which may be stale. It needs no quorum.
func (r *Requests) ReadStale(ctx context.Context, run func(Machine)) error {
	return r.read(ctx, run, (*core.Core).ReadStale)
}

func (r *Requests) read(ctx context.Context, run func(Machine), read func(*core.Core, core.Read) error) error {
	p := &pendingRead{run: run, done: make(chan error, 1)}
	defer p.ended.Store(true)
	r.post(event{run: func(c *core.Core) {
		if err := read(c, p); err != nil {
			p.done <- err
		}
	}})
	return r.await(ctx, p.done)
}

// await waits for an answer of the loop.
func (r *Requests) await(ctx context.Context, answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-r.done:
		return r.stopped()
	}
}

// pendingRead does not have its caller's context, whose methods may be the application's: they
// may block or panic, and it is asked on the loop's goroutine.
type pendingRead struct {
	run   func(Machine)
	done  chan error
	ended atomic.Bool // the caller has left
}

// Ended implements core.Read.
func (p *pendingRead) Ended() bool { return p.ended.Load() }

// Run implements core.Read.
func (p *pendingRead) Run(machine Machine) {
	p.run(machine)
	p.done <- nil
}

// Post has the loop run an event. It never blocks; if the loop has stopped, the event is dropped. What posts
// events is bounded.
func (r *Requests) Post(run func(*core.Core)) { r.post(event{run: run}) }

// Backlog returns how many calls of this process have no outcome yet, without the urgent
// ones, and the bytes of their commands.
func (r *Requests) Backlog() (calls, bytes int) { return r.backlog.sum() }

// Reregister replaces the incarnation old, whose registration has expired, by a new one:
// every pending call fails, and later ones run under the new incarnation. register
// returns the command that registers it; it runs on the loop's goroutine, unless old
// has been replaced already.
func (r *Requests) Reregister(old wire.ID, register func() ([]byte, Call)) {
	r.post(event{run: func(c *core.Core) {
		if c.Incarnation() != old {
			return // another call has reregistered
		}
		command, call := register()
		c.Reregister(identity.RandomID(), command, call)
	}})
}
