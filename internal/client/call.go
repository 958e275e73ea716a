package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// call is a command with one outcome. on runs once, on the goroutine that delivers
// outcomes, and must not block.
type call struct {
	commands  *commands
	on        func(answer)
	cancelled func(sent bool) // nil: never cancelled
	pursued   *wire.Command   // that only ends or releases something: see again; nil: another one
	pause     time.Duration   // before it is submitted again
}

// answer is the outcome of a call, or the reason why there is none.
type answer struct {
	reply       *wire.Reply
	incarnation wire.ID // that the command was applied under; with reply
	unsent      bool    // it was not sent, since that is not registered; with reply
	err         error   // no outcome will come
}

// fault returns why the command was refused or has no outcome.
func (a answer) fault() error {
	if a.err != nil {
		return a.err
	}
	return refusal(a.reply)
}

// unregistered reports that the registration of this process had expired when the
// command was applied, so it had no effect then. If a first application had one,
// its outcome was skipped. What is submitted next runs under a new registration.
func (a answer) unregistered() bool { return a.reply.GetCode() == wire.Code_UNKNOWN_INCARNATION }

// expired reports that the registration expired, before or after the command was
// applied.
func (a answer) expired() bool {
	if a.err != nil {
		return errors.Is(a.err, tickets.ErrUnregistered)
	}
	return a.unregistered()
}

// Deliver implements Call.
func (c *call) Deliver(t wire.Ticket, r *wire.Reply, _ bool) {
	if r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
		c.commands.expired(t.Incarnation)
	}
	if r.GetCode() == wire.Code_BUSY && c.pursued != nil {
		c.again()
		return
	}
	c.on(answer{reply: r, incarnation: t.Incarnation, unsent: t.Seq == 0})
}

// Fail implements Call.
func (c *call) Fail(err error) { c.on(answer{err: err}) }

// Recheck implements Call: a call has one outcome, so none can have been skipped.
func (c *call) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }

// Cancelled implements Call.
func (c *call) Cancelled(sent bool) { c.cancelled(sent) }

// minBusyPause and maxBusyPause bound the time before a command is submitted again that the
// group was too busy for. It doubles.
const minBusyPause, maxBusyPause = 100 * time.Millisecond, 2 * time.Second

// again submits a command again under another ticket, after a pause: the group refuses any
// command of a process while too many outcomes are not acknowledged, by this process or all
// together. What was refused has no effect, and a session would keep what it has released here.
func (c *call) again() {
	next := &call{commands: c.commands, on: c.on, pursued: c.pursued, pause: min(2*c.pause, maxBusyPause)}
	time.AfterFunc(c.pause/2+rand.N(c.pause), func() { c.commands.submit(next.pursued, next, true) })
}

// releases reports whether a command does nothing but end or release something.
func releases(cmd *wire.Command) bool {
	switch cmd.GetOp().(type) {
	case *wire.Command_Unlock, *wire.Command_UnlockSet, *wire.Command_EndRun, *wire.Command_Release, *wire.Command_Withdraw,
		*wire.Command_LeaveShards, *wire.Command_ReleaseShards, *wire.Command_CloseSession, *wire.Command_Deregister, *wire.Command_Extend: // pursued only for a hold that was lost
		return true
	}
	return false
}

// commands submits commands to the group and waits for their outcomes. It may be used on any goroutine.
type commands struct {
	life    *lifetime
	group   Group                                                           // set by Connect
	enter   func(ctx context.Context, stale bool) (leave func(), err error) // Config.Enter
	expired func(incarnation wire.ID)                                       // runs when the registration of this process has expired
	used    func()                                                          // runs when a command is submitted
	// replacements counts how often a snapshot replaced the state, and outcomes
	// may have been skipped.
	replacements atomic.Uint64
}

// pursue submits a command and retries it until its outcome is known, whatever
// becomes of the caller's context. It is for what must not be refused: renewals,
// releases and withdrawals.
func (c *commands) pursue(cmd *wire.Command, on func(answer)) {
	k := &call{commands: c, on: on}
	if releases(cmd) {
		k.pursued, k.pause = cmd, minBusyPause
	}
	c.submit(cmd, k, true)
}

// submit submits a command, which is encoded only if it is not refused.
func (c *commands) submit(cmd *wire.Command, k Call, urgent bool) {
	c.used()
	c.group.Submit(wire.CommandSize(cmd), func() []byte { return encode(cmd) }, k, urgent)
}

// ignore is for commands whose outcome is not needed.
func ignore(answer) {}

// Exec submits a command and waits for its outcome; a refusal is an error. If ctx
// is done before the command was sent, there is no effect (Unavailable); if it is
// done later, there may be one (Unknown).
func (c *commands) Exec(ctx context.Context, cmd *wire.Command) (*wire.Reply, error) {
	if err := c.life.Usable(); err != nil {
		return nil, err
	}
	reply, err := c.exec(ctx, cmd)
	if err == nil {
		err = refusal(reply)
	}
	return reply, err
}

// exec is Exec in which a refusal is no error. Where the registration of this
// process has expired, exec submits the command again under a new one. Had the
// command been applied before, its outcome would have come first, as both come
// through the log; and what arrives late under the old registration is refused.
// Only a snapshot can have skipped the outcome: then it is unknown, if the command was sent.
func (c *commands) exec(ctx context.Context, cmd *wire.Command) (*wire.Reply, error) {
	return c.execEach(ctx, cmd, noNote)
}

func noNote() func(answer) { return ignore }

// entered is Config.Enter.
func (c *commands) entered(ctx context.Context) (leave func(), err error) {
	return c.enteredTo(ctx, QueryOptions{})
}

// enteredTo is entered for a query.
func (c *commands) enteredTo(ctx context.Context, opts QueryOptions) (leave func(), err error) {
	if c.enter == nil {
		return func() {}, nil
	}
	return c.enter(ctx, opts.Stale)
}

// use is entered, unless the client refuses every use.
func (c *commands) use(ctx context.Context) (leave func(), err error) {
	if err := c.life.Usable(); err != nil {
		return nil, err
	}
	return c.entered(ctx)
}

// execEach is exec. begin is called before each submission; what it returns gets the
// answer, as with send.
func (c *commands) execEach(ctx context.Context, cmd *wire.Command, begin func() (note func(answer))) (*wire.Reply, error) {
	leave, err := c.entered(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return c.execReached(ctx, cmd, begin)
}

// execReached is execEach of a client that is connected.
func (c *commands) execReached(ctx context.Context, cmd *wire.Command, begin func() (note func(answer))) (*wire.Reply, error) {
	for {
		replacements := c.replacements.Load()
		a := c.await(ctx, cmd, begin())
		if !a.expired() {
			return a.reply, a.err
		}
		if err := c.life.Usable(); err != nil {
			return nil, err // this process deregistered itself
		}
		if c.replacements.Load() != replacements && !a.unsent {
			return nil, &Fault{Kind: Unknown, Detail: "the registration of this process has expired meanwhile"}
		}
	}
}

// send is exec without a second attempt. note gets the answer first, on the
// goroutine that delivers outcomes and whether or not the caller still waits,
// unless ctx is done before the command was sent.
func (c *commands) send(ctx context.Context, cmd *wire.Command, note func(answer)) (*wire.Reply, error) {
	a := c.await(ctx, cmd, note)
	return a.reply, a.err
}

// await is send with all that the answer says.
func (c *commands) await(ctx context.Context, cmd *wire.Command, note func(answer)) answer {
	if ctx.Err() != nil {
		return answer{err: contextFault(Interrupted, ctx)}
	}
	answered := make(chan answer, 1)
	cancelled := make(chan bool, 1)
	k := &call{
		commands:  c,
		on:        func(a answer) { note(a); answered <- a },
		cancelled: func(sent bool) { cancelled <- sent },
	}
	c.submit(cmd, k, isUrgent(cmd))
	select {
	case a := <-answered:
		a.err = c.ended(a.err)
		return a
	case <-ctx.Done():
	}
	c.group.Cancel(k)
	select {
	case a := <-answered: // it was faster
		a.err = c.ended(a.err)
		return a
	case sent := <-cancelled:
		if !sent {
			return answer{err: c.unavailable(ctx)}
		}
	}
	select {
	case a := <-answered:
		a.err = c.ended(a.err)
		return a
	default:
		return answer{err: contextFault(Unknown, ctx)}
	}
}

// ended is the fault of a command that was submitted, with what Fail got. The end of the group's
// connection does not tell whether a command that was sent was applied before.
func (c *commands) ended(err error) error {
	var unsent *tickets.UnsentError
	switch {
	case errors.As(err, &unsent):
		return unsent.Cause
	case err == nil, errors.Is(err, tickets.ErrBusy), errors.Is(err, tickets.ErrUnregistered), IsKind(err, ReadOnly), IsKind(err, NoGroup):
		return err
	}
	return &Fault{Kind: Unknown, Cause: err}
}

// isUrgent reports whether a deadline in the group depends on the command: renewals and
// changes of checks go before other commands.
func isUrgent(cmd *wire.Command) bool {
	return cmd.GetRenew() != nil || cmd.GetRenewSession() != nil || cmd.GetSetCheck() != nil
}

func encode(cmd *wire.Command) []byte {
	b, err := wire.EncodeCommand(cmd)
	if err != nil {
		// Only invalid UTF-8 fails, and names are checked. The machine refuses an
		// empty command with a message.
		return nil
	}
	return b
}
