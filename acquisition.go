package conclave

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// target is what an acquisition is after: a lock, the lead of an election, or
// permits.
type target interface {
	// place is where it queues. handle is 0 where one place differs from
	// another by its ticket alone.
	place() (space wire.Space, name string, handle uint64)
	// granted takes note of a grant, on the node's loop and in the log's order.
	// An error says why it comes too late.
	granted(s *Session, f Fence) error
	// giveBack takes one grant that was noted off again. h is nil when there is
	// none any more.
	giveBack() (h *hold, lost bool)
	// release makes the command that gives a grant back to the group.
	release(s *Session, f Fence) *wire.Command
}

// acquisition is one Lock, Acquire or Campaign on its way through the group.
// Either its caller gets the result, or the caller leaves before there is one,
// and then whatever comes is taken back. phase decides which.
type acquisition struct {
	target  target
	session *Session
	result  chan acquired // takes one
	unsent  chan bool     // answers a cancellation

	mu    sync.Mutex
	phase phase  // guarded by mu
	seq   uint64 // guarded by mu; of the ticket, from queued on
}

type acquired struct {
	fence Fence
	err   error
}

type phase int

const (
	sent      phase = iota // no outcome yet
	queued                 // the grant will follow
	decided                // the result has been sent
	left                   // by the caller, before any outcome: the outcome will be undone
	withdrawn              // by the caller, while queued: the withdrawal undoes a grant as well
)

// errRefusedSession: the group did not know the session when the request came.
var errRefusedSession = errors.New("refused session")

func newAcquisition(t target, s *Session) *acquisition {
	return &acquisition{target: t, session: s, result: make(chan acquired, 1), unsent: make(chan bool, 1)}
}

// run sends the command and waits for the result.
func (a *acquisition) run(ctx context.Context, cmd *wire.Command) (Fence, error) {
	a.session.node.member.Submit(encode(cmd), a, false)
	select {
	case r := <-a.result:
		return r.fence, r.err
	case <-a.session.done:
		return 0, a.leave(fmt.Errorf("waiting: %w", a.session.alive()))
	case <-ctx.Done():
	}
	a.session.node.member.Cancel(a)
	select {
	case unsent := <-a.unsent:
		if unsent {
			return 0, because(ErrUnavailable, ctx)
		}
	case r := <-a.result:
		a.result <- r
	}
	return 0, a.leave(ended(ctx))
}

// leave goes without a result. A grant that has come already is given back: a
// caller whose context has ended does not expect to have to unlock.
func (a *acquisition) leave(why error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.phase {
	case sent:
		a.phase = left
	case queued:
		a.phase = withdrawn
		a.withdraw()
	case decided:
		r := <-a.result
		if r.err != nil && !errors.Is(r.err, errRefusedSession) {
			return r.err
		}
		if r.err == nil {
			a.giveBackGranted()
		}
	}
	return why
}

// Deliver takes an outcome from the log: granted, refused, or queued with the
// grant to follow.
func (a *acquisition) Deliver(t wire.Ticket, r *wire.Reply, more bool) {
	if r.GetCode() == wire.Code_UNKNOWN_INCARNATION {
		a.session.node.forgotten(t.Incarnation)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.phase {
	case sent, queued:
		if more {
			a.phase, a.seq = queued, t.Seq
			return
		}
		a.decide(r)
	case left:
		if more {
			a.phase, a.seq = withdrawn, t.Seq
			a.withdraw()
		} else if refusal(r) == nil {
			a.giveBack(Fence(r.GetFence()))
		}
	}
}

// decide turns the last outcome into the result. a.mu is held.
func (a *acquisition) decide(r *wire.Reply) {
	result := acquired{fence: Fence(r.GetFence()), err: refusal(r)}
	switch {
	case result.err == nil:
		if err := a.target.granted(a.session, result.fence); err != nil {
			a.giveBack(result.fence)
			result = acquired{err: err}
		}
	case errors.Is(result.err, ErrSessionExpired) && a.phase == sent:
		result.err = errRefusedSession
	}
	a.phase = decided
	a.result <- result
}

// giveBack releases a grant that nobody was told of.
func (a *acquisition) giveBack(f Fence) {
	a.session.node.pursue(a.target.release(a.session, f), forget)
}

// giveBackGranted releases a grant that was noted.
func (a *acquisition) giveBackGranted() {
	if h, lost := a.target.giveBack(); h != nil && !lost {
		a.session.node.pursue(a.target.release(h.session, h.fence), forget)
	}
}

// withdraw takes the place in the queue back, or the grant if it comes first.
// It is pursued until that is certain, or the session has ended.
func (a *acquisition) withdraw() {
	space, name, handle := a.target.place()
	a.session.node.pursue(&wire.Command{Op: &wire.Command_Withdraw{Withdraw: &wire.Withdraw{
		Name: name, Session: a.session.id[:], Handle: handle, Seq: a.seq, Space: space,
	}}}, forget)
}

func (a *acquisition) Cancelled(sent bool) { a.unsent <- !sent }

// Fail ends the acquisition without an outcome. Nothing is held then: the node
// stops, nothing was sent, or the group has forgotten this process, and then
// its sessions have ended here.
func (a *acquisition) Fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != sent && a.phase != queued {
		return
	}
	result := acquired{err: ours(err)}
	if errors.Is(err, cluster.ErrUnregistered) {
		result.err = errRefusedSession
	}
	a.phase = decided
	a.result <- result
}

// Recheck finds out whether the grant was among what a snapshot stands for.
func (a *acquisition) Recheck(state cluster.Machine, t wire.Ticket) *wire.Reply {
	space, name, _ := a.target.place()
	found := state.(*machine.Machine).Acquisition(space, name, t)
	switch {
	case found.Waiting:
		return nil
	case found.Held:
		return &wire.Reply{Code: wire.Code_OK, Fence: found.Fence, Holds: found.Holds}
	}
	m := state.(*machine.Machine)
	if v, ok := m.Session(a.session.id); ok && v.Incarnation == t.Incarnation && space == wire.Space_SEMAPHORE {
		// Nothing else sends a waiter of a live session away.
		resized, _ := m.Semaphore(name)
		return &wire.Reply{Code: wire.Code_LIMIT_MISMATCH, Limit: resized.Limit}
	}
	return &wire.Reply{Code: wire.Code_SESSION_EXPIRED}
}

var _ cluster.Call = (*acquisition)(nil)
