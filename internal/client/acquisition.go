package client

import (
	"context"
	"errors"
	"sync"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// target is what an acquisition acquires: a lock, the leadership of an election, or
// permits.
type target interface {
	// granted notes a grant, in log order, on the goroutine that delivers outcomes.
	// sent is when the request was sent. An error says that the grant comes too late.
	granted(l *Lease, r *wire.Reply, sent instant) error
	// takeBack undoes granted: it takes one noted grant off the handle.
	takeBack() taken
	// semaphore is the name of the semaphore whose limit a request is refused by if it has obtained nothing; "": none.
	semaphore() string
	// job is the name in the space of jobs that a request is for; "": none.
	job() string
	// releaseCommand makes the command that releases a grant.
	releaseCommand(l *Lease, g grant) *wire.Command
	// undoing notes that something is being undone which a later request must not
	// overtake, until done is called.
	undoing() (done func())
}

// acquisition is one Lock, Acquire or Campaign under way. Its caller gets the
// result, or abandons it first:
//
//	waiting ──(last outcome)──> decided
//	   └──(the caller leaves)──> abandoned
//
// A caller that leaves while the request is queued withdraws it, by its ticket; the
// machine undoes the place in the queue or the grant, whichever it finds. Before the
// first outcome there is no ticket to name: the outcome is undone when it comes.
type acquisition struct {
	target target
	lease  *Lease
	sent   instant
	result chan acquired    // takes one
	unsent chan bool        // the answer to a cancellation
	places chan *wire.Reply // takes one, that queued the request; nil: nothing waits for it

	// entered is closed when another call of a re-entrant handle has been granted the lock; nil: that does not matter.
	entered <-chan struct{}

	mu     sync.Mutex
	phase  phase       // guarded by mu
	queued *wire.Reply // guarded by mu; the outcome that queued the request, if any
	ticket wire.Ticket // guarded by mu; with queued
	undone func()      // guarded by mu; of an abandoned request: to call once nothing is left of it
}

type acquired struct {
	fence uint64
	cause []byte // see Trace
	err   error
}

type phase int

const (
	waiting phase = iota
	decided
	abandoned
)

// errUnknownSession: the session had ended before the request was applied.
var errUnknownSession = errors.New("unknown session")

func newAcquisition(t target, l *Lease) *acquisition {
	return &acquisition{target: t, lease: l, result: make(chan acquired, 1), unsent: make(chan bool, 1)}
}

// until has the acquisition leave the queue when entered is closed; nil: it never is.
func (a *acquisition) until(entered <-chan struct{}) *acquisition {
	a.entered = entered
	return a
}

// run submits the command and waits for the result.
func (a *acquisition) run(ctx context.Context, cmd *wire.Command, tr *Trace) (fence uint64, err error) {
	if !a.lease.enter() {
		return 0, errLeaseEnded
	}
	defer a.lease.leave()
	a.places, a.sent = tr.places(), a.lease.client.clock.Now()
	if a.entered != nil && a.places == nil {
		a.places = make(chan *wire.Reply, 1)
	}
	a.lease.client.submit(cmd, a, false)
	if tr == nil {
		return a.wait(ctx, nil)
	}
	return orLeave(func() (uint64, error) { return a.wait(ctx, tr) }, a.abandon)
}

func (a *acquisition) wait(ctx context.Context, tr *Trace) (fence uint64, err error) {
	client, entered := a.lease.client, a.entered
	queued, overtaken := false, false
wait:
	for {
		select {
		case r := <-a.places:
			tr.queued(r)
			queued = true
		case <-entered:
			entered, overtaken = nil, true
		case r := <-a.result:
			tr.caused(a.result, r, a.places)
			return r.fence, r.err
		case <-a.lease.done:
			tr.drain(a.places)
			return 0, a.abandon(a.leaseEnded())
		case <-ctx.Done():
			break wait
		}
		if queued && overtaken && !a.isDecided() { // it would wait for its own handle
			return 0, a.abandon(errAnotherTenure)
		}
	}
	tr.drain(a.places)
	client.group.Cancel(a)
	select {
	case unsent := <-a.unsent:
		if unsent {
			return 0, client.unavailable(ctx)
		}
	case r := <-a.result:
		a.result <- r
	}
	return 0, a.abandon(contextFault(Interrupted, ctx))
}

// errLeaseEnded: the lease ended while the request was waiting.
var errLeaseEnded = errors.New("the lease has ended")

func leaseEnded() error { return errLeaseEnded }

// leaseEnded is why the caller leaves at the end of the lease. A session without TTL outlives this process, and has what it is
// granted meanwhile.
func (a *acquisition) leaseEnded() error {
	if why := a.lease.Err(); a.lease.outlives(why) && IsKind(why, Closed) {
		return &Fault{Kind: Unknown, Cause: why}
	}
	return errLeaseEnded
}

// abandon leaves without a result. A grant that has come already is released: a
// caller whose context is done does not expect to hold anything.
func (a *acquisition) abandon(why error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var f *Fault
	if errors.As(why, &f) {
		f.Reply = a.queued
	}
	if a.phase == waiting {
		a.phase, a.undone = abandoned, a.target.undoing()
		if a.queued != nil {
			a.withdraw()
		}
		return why
	}
	r := <-a.result
	switch {
	case r.err == nil:
		if t := a.target.takeBack(); t.hold != nil && !t.lost {
			t.release(a.target)
		}
	case !errors.Is(r.err, errUnknownSession):
		return r.err
	}
	return why
}

// Deliver implements Call: the request is granted, refused, or queued with the
// grant to follow.
func (a *acquisition) Deliver(t wire.Ticket, r *wire.Reply, more bool) {
	if r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
		a.lease.client.registrationExpired(t.Incarnation)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.queued == nil
	if more {
		a.queued, a.ticket = r, t
		if first && a.places != nil {
			a.places <- r
		}
	}
	switch {
	case a.phase == waiting && !more:
		a.decide(r, first)
	case a.phase == abandoned && first && more:
		a.withdraw()
	case a.phase == abandoned && first && refusal(r) == nil:
		a.release(r, a.undone)
	case a.phase == abandoned && first:
		a.undone() // it was refused
	}
}

// answered reports whether the group has answered the request.
func (a *acquisition) answered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queued != nil || a.phase == decided
}

// isDecided reports whether the result is there.
func (a *acquisition) isDecided() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase == decided
}

// decide makes the last outcome the result. a.mu is held.
func (a *acquisition) decide(r *wire.Reply, first bool) {
	result := acquired{fence: r.GetFence(), cause: r.GetTrace(), err: refusal(r)}
	switch {
	case result.err == nil:
		if err := a.target.granted(a.lease, r, a.sent); err != nil {
			a.release(r, a.target.undoing())
			result = acquired{err: err}
		}
	case isCode(result.err, wire.Code_WITHDRAWN):
		// The caller still waits, so this is no withdrawal of ours: the registration
		// has expired, and with it the place of a session without TTL.
		a.lease.end(unbound(), lost)
		result.err = errLeaseEnded
	case isCode(result.err, wire.Code_SESSION_EXPIRED, wire.Code_UNKNOWN_INCARNATION):
		result.err = errLeaseEnded
		if first {
			result.err = errUnknownSession
		}
	}
	a.phase = decided
	a.result <- result
}

// release releases a grant that no caller has received, and then calls done.
func (a *acquisition) release(r *wire.Reply, done func()) {
	a.lease.client.pursue(a.target.releaseCommand(a.lease, grantOf(r)), func(answer) { done() })
}

// withdraw is pursued until it is applied, or the session has ended.
func (a *acquisition) withdraw() {
	done := a.undone
	a.lease.client.pursue(&wire.Command{Op: &wire.Command_Withdraw{Withdraw: &wire.Withdraw{
		Incarnation: a.ticket.Incarnation[:], Seq: a.ticket.Seq,
	}}}, func(answer) { done() })
}

// Recheck implements Call.
func (a *acquisition) Recheck(state wire.Rechecker, t wire.Ticket) *wire.Reply {
	return state.Recheck(t, a.lease.id, a.target.semaphore(), a.target.job())
}

// Cancelled implements Call.
func (a *acquisition) Cancelled(sent bool) { a.unsent <- !sent }

// Fail implements Call. Nothing is held then: the group cannot be reached, nothing
// was sent, or the registration of this process has expired, and with it the
// session. Without TTL the session lives on, and may have been granted what was sent.
func (a *acquisition) Fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == abandoned && a.queued == nil {
		a.undone()
	}
	if a.phase != waiting {
		return
	}
	switch {
	case errors.Is(err, tickets.ErrUnregistered):
		err = errUnknownSession
	case a.lease.outlives(err):
		err = a.lease.client.ended(err)
	}
	a.phase = decided
	a.result <- acquired{err: err}
}

// unlessRefused is the result of a request: a caller must not take the fence of what it does not hold for its own.
func unlessRefused(fence uint64, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	return fence, nil
}
