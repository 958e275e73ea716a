package sim

import (
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conclave-go/conclave/internal/wire"
)

// One model for all locks, as their users see them: mutex, re-entrant mutex with
// a limit, both with fences, and elections, which are locks with a value. It is
// nondeterministic in what nobody knows: when a session ends, and what became of
// operations without outcome.
type lockState struct {
	owner  *span // nil: nobody
	handle uint64
	by     wire.ID    // the process that took it
	grant  *operation // the Lock by which the hold began
	holds  uint32
	fence  uint64        // 0: nobody knows
	most   uint64        // the largest fence that is known
	delay  time.Duration // not granted before; 0: no lock-delay
}

func lockModel() porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{lockState{}} },
		Step: func(state, input, _ any) (next []any) {
			op := input.(*operation)
			for _, st := range state.(lockState).partings(op) {
				for _, after := range st.step(op) {
					next = append(next, after)
				}
			}
			return next
		},
	}
}

// partings are the states that may be when the operation comes, for the owner's
// session may have ended, with a lock-delay or gracefully.
func (s lockState) partings(op *operation) []lockState {
	if s.owner == nil {
		return []lockState{s}
	}
	return endings([]lockState{s}, s.owner, op, func(s lockState, _ *span, until time.Duration) lockState { return s.free(until) })
}

// delayed is until when at least a lock-delay lasts, which is measured on a clock
// that may be 1 % fast.
func (s *span) delayed() time.Duration {
	earliest := s.asked
	switch {
	case s.adrift:
		return 1
	case s.frail:
		earliest = 0
	case !s.lasting && s.holder != nil:
		p := s.holder.program
		earliest = min(earliest, p.began+p.lasts(s.holder.deadline))
	}
	return max(1, earliest+s.delay-s.delay/50)
}

func (s lockState) free(delay time.Duration) lockState { return lockState{most: s.most, delay: delay} }

func (s lockState) step(op *operation) []lockState {
	switch c := op.command.Op.(type) {
	case *wire.Command_Lock:
		return s.lock(op, c.Lock)
	case *wire.Command_Unlock:
		return s.unlock(op, c.Unlock)
	case *wire.Command_Withdraw:
		return s.withdraw(op)
	case *wire.Command_Proclaim:
		return s.proclaim(op, c.Proclaim)
	}
	return nil
}

// when is the state if something holds.
func (s lockState) when(holds bool) []lockState {
	if holds {
		return []lockState{s}
	}
	return nil
}

func (s lockState) mine(op *operation, handle uint64) bool {
	return s.owner != nil && s.owner == op.session && s.handle == handle && s.by == op.incarnation
}

// left: the session's former process has it.
func (s lockState) left(op *operation) bool {
	return s.owner != nil && s.owner == op.session && s.by != op.incarnation
}

func (s lockState) knows(fence uint64) bool { return s.fence == 0 || s.fence == fence }

func (s lockState) lock(op *operation, c *wire.Lock) []lockState {
	again := s.mine(op, c.Handle) && c.Reentrant
	full := c.Limit > 0 && s.holds >= c.Limit
	var granted []lockState
	switch {
	case c.Fence == 0 && (s.owner == nil && s.delay <= op.returnedAt || s.left(op)):
		granted = lockState{owner: op.session, handle: c.Handle, by: op.incarnation, grant: op, holds: 1, most: s.most}.when(true)
	case again && !full && (c.Fence == 0 || s.knows(c.Fence)):
		s := s
		s.holds++
		granted = s.when(true)
	}
	if op.reply == nil {
		return append(granted, s)
	}
	switch r := op.reply; r.GetCode() {
	case wire.Code_OK:
		for _, g := range granted {
			return g.told(r)
		}
		return nil
	case wire.Code_LOCKED:
		return s.when(s.owner != nil && !again && !s.left(op))
	case wire.Code_LOCK_DELAY:
		return s.when(s.owner == nil && s.delay > 0)
	case wire.Code_LIMIT_REACHED:
		return s.when(again && full)
	case wire.Code_OWNERSHIP_LOST:
		return s.when(!s.mine(op, c.Handle) || s.fence != c.Fence)
	}
	return nil
}

// told takes what the reply says of the hold.
func (s lockState) told(r *wire.Reply) []lockState {
	fresh := s.fence == 0
	if r.GetHolds() != s.holds || fresh && r.GetFence() <= s.most || !s.knows(r.GetFence()) {
		return nil
	}
	s.fence = r.GetFence()
	s.most = max(s.most, s.fence)
	return s.when(true)
}

func (s lockState) unlock(op *operation, c *wire.Unlock) []lockState {
	match := s.mine(op, c.Handle) && s.knows(c.Fence)
	if op.reply == nil {
		if match {
			return append(s.release(), s)
		}
		return s.when(true)
	}
	switch op.reply.GetCode() {
	case wire.Code_OK:
		if match && op.reply.GetHolds() == s.holds-1 && op.reply.GetFence() == c.Fence {
			return s.release()
		}
		return nil
	case wire.Code_NOT_HELD:
		return s.when(!s.mine(op, c.Handle))
	case wire.Code_OWNERSHIP_LOST:
		return s.when(s.mine(op, c.Handle) && s.fence != c.Fence)
	}
	return nil
}

func (s lockState) release() []lockState {
	if s.holds--; s.holds == 0 {
		return s.free(0).when(true)
	}
	return s.when(true)
}

// withdraw takes a place in the queue back, of which this model knows nothing, or
// a hold that has been granted by that Lock.
func (s lockState) withdraw(op *operation) []lockState {
	granted := s.owner != nil && op.of != nil && s.grant == op.of
	r := op.reply
	switch {
	case r == nil && granted:
		return append(s.release(), s)
	case r == nil:
		return s.when(true)
	case r.GetCode() == wire.Code_NOT_HELD || r.GetFence() == 0:
		return s.when(!granted)
	case r.GetCode() == wire.Code_OK && granted && s.knows(r.GetFence()):
		return s.release()
	}
	return nil
}

func (s lockState) proclaim(op *operation, c *wire.Proclaim) []lockState {
	match := s.mine(op, c.Handle) && s.knows(c.Fence)
	switch {
	case op.reply == nil:
		return s.when(true)
	case op.reply.GetCode() == wire.Code_OK:
		return s.when(match && op.reply.GetHolds() == s.holds)
	case op.reply.GetCode() == wire.Code_NOT_HELD:
		return s.when(!s.mine(op, c.Handle))
	}
	return s.when(s.fence != c.Fence)
}

// about are the operations on one lock, election or semaphore. Without effect and
// left out are those that were taken back or refused for reasons of their session;
// when that ended, its span knows.
func (o *outside) about(space wire.Space, name string) (ops []porcupine.Operation) {
	for _, op := range o.operations {
		if in, of := op.names(); of != name || in != space || op.ineffective() {
			continue
		}
		ops = append(ops, op.forPorcupine())
	}
	return ops
}

func (op *operation) forPorcupine() porcupine.Operation {
	return porcupine.Operation{Input: op, Call: op.called, Return: op.returned}
}

func (op *operation) names() (wire.Space, string) {
	space := map[bool]wire.Space{true: wire.Space_ELECTION}
	switch c := op.command.GetOp().(type) {
	case *wire.Command_Lock:
		return space[c.Lock.Election], c.Lock.Name
	case *wire.Command_Unlock:
		return space[c.Unlock.Election], c.Unlock.Name
	case *wire.Command_Proclaim:
		return wire.Space_ELECTION, c.Proclaim.Name
	case *wire.Command_Withdraw:
		if op.of != nil {
			return op.of.names()
		}
	case *wire.Command_Acquire:
		return wire.Space_SEMAPHORE, c.Acquire.Name
	case *wire.Command_Release:
		return wire.Space_SEMAPHORE, c.Release.Name
	case *wire.Command_Resize:
		return wire.Space_SEMAPHORE, c.Resize.Name
	}
	return 0, ""
}

func (op *operation) ineffective() bool {
	switch op.reply.GetCode() {
	case wire.Code_SESSION_EXPIRED, wire.Code_WITHDRAWN:
		return true
	}
	return op.undone
}
