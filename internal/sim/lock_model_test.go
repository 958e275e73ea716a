package sim

import (
	"bytes"
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// lockState is the model of all locks, as clients see them: mutex, re-entrant mutex
// with a limit, both with fences, and elections, which are locks with a value. It
// is nondeterministic in what clients cannot know: when a session ends, and the
// effect of operations without an outcome.
type lockState struct {
	owner        *sessionSpan // nil: not held
	handle       uint64
	process      wire.ID    // incarnation of the process that acquired it
	grant        *operation // the Lock by which the hold began
	holds        uint32
	fence        uint64        // 0: unknown
	maxFence     uint64        // the largest fence that is known
	delayedUntil time.Duration // not granted before; 0: no lock-delay
	tenant       uint64        // handle that the owner has granted the lock in its tenure; 0: none

	shares      []sharedHold  // by session, in the order of its grants; then there is no owner
	sharedFence uint64        // of the phase; 0: unknown, or there are no shares
	sharedDelay time.Duration // before which no exclusive request is granted; 0: no lock-delay
}

func lockModel() stateModel[lockState] {
	return stateModel[lockState]{
		init: lockState{}, before: lockState.possibleStates, step: lockState.step, equal: lockState.equal, hash: lockState.hash,
		largest: func(s lockState) uint64 { return s.maxFence },
	}
}

func (s lockState) hash() uint64 {
	type fields struct {
		owner, grant              any
		handle, fence, maxFence   uint64
		delayedUntil, sharedDelay time.Duration
		tenant                    uint64
	}
	return hashAll(hashOf(fields{s.owner, s.grant, s.handle, s.fence, s.maxFence, s.delayedUntil, s.sharedDelay, s.tenant}), s.shares)
}

// possibleStates are the states in which the operation may find the lock: the
// owner's session may have ended, with a lock-delay or gracefully, or the hold by its MaxHold, or for another process's claim.
func (s lockState) possibleStates(op *operation) []lockState {
	if s.owner == nil {
		return s.possibleShares(op)
	}
	states := withPossibleEnds([]lockState{s}, s.owner, op, func(s lockState, _ *sessionSpan, until time.Duration) lockState { return s.free(until) })
	if until, ended := s.grant.endedBy(op.returnedTime); ended {
		states = append(states, s.free(until))
	}
	if s.releasedExclusive(op) {
		states = append(states, s.free(0))
	}
	return states
}

func (s lockState) free(until time.Duration) lockState {
	return lockState{maxFence: s.maxFence, delayedUntil: until}
}

func (s lockState) step(op *operation) []lockState {
	next := s.carryOut(op)
	for i := range next {
		next[i].sortShares()
	}
	return next
}

// sortShares makes states equal that differ in the order of grants to different sessions alone, on which nothing depends.
func (s *lockState) sortShares() {
	bySession := func(a, b sharedHold) int { return bytes.Compare(a.owner.id[:], b.owner.id[:]) }
	if !slices.IsSortedFunc(s.shares, bySession) {
		s.shares = slices.Clone(s.shares)
		slices.SortStableFunc(s.shares, bySession)
	}
}

func (s lockState) carryOut(op *operation) []lockState {
	switch c := op.command.Op.(type) {
	case *wire.Command_Lock:
		if op.local != nil {
			return s.localGrant(op, c.Lock)
		}
		if c.Lock.Shared {
			return s.lockShared(op, c.Lock)
		}
		return s.lock(op, c.Lock)
	case *wire.Command_Unlock:
		if op.local != nil {
			return s.localRelease(op, c.Unlock)
		}
		if c.Unlock.Share != 0 {
			return s.unlockShared(op, c.Unlock)
		}
		return s.unlock(op, c.Unlock)
	case *wire.Command_Withdraw:
		return s.withdraw(op)
	case *wire.Command_Downgrade:
		return s.downgrade(op, c.Downgrade)
	case *wire.Command_Extend:
		return s.extend(op, c.Extend)
	case *wire.Command_Proclaim:
		return s.proclaim(op, c.Proclaim)
	}
	return nil
}

// onlyIf returns the state if the condition holds.
func (s lockState) onlyIf(holds bool) []lockState {
	if holds {
		return []lockState{s}
	}
	return nil
}

func (s lockState) ownedBy(op *operation, handle uint64) bool {
	return s.owner != nil && s.owner == op.session && s.handle == handle && s.process == op.incarnation
}

// unclaimed: the hold is that of the session's earlier process.
func (s lockState) unclaimed(op *operation) bool {
	return s.owner != nil && s.owner == op.session && s.process != op.incarnation
}

func (s lockState) fenceMatches(fence uint64) bool { return s.fence == 0 || s.fence == fence }

func (s lockState) lock(op *operation, c *wire.Lock) []lockState {
	reentrant := s.ownedBy(op, c.Handle) && c.Reentrant
	full := c.Limit > 0 && s.holds >= c.Limit
	var granted []lockState
	switch {
	case c.Fence == 0 && (s.isFree(op.returnedTime) || s.unclaimed(op)):
		granted = lockState{owner: op.session, handle: c.Handle, process: op.incarnation, grant: op, holds: 1, maxFence: s.maxFence}.onlyIf(true)
	case reentrant && !full && (c.Fence == 0 || s.fenceMatches(c.Fence)):
		s := s
		s.holds++
		granted = s.onlyIf(true)
	}
	if op.reply == nil {
		return append(granted, s)
	}
	switch r := op.reply; r.GetCode() {
	case wire.Code_OK:
		var learned []lockState
		for _, g := range granted {
			learned = append(learned, g.learn(r)...)
		}
		if c.Lingering { // the first grant in the tenure has this fence
			for i := range learned {
				learned[i].maxFence--
			}
		}
		return learned
	case wire.Code_LOCKED:
		return s.onlyIf(len(s.shares) > 0 || s.owner != nil && !reentrant && !s.unclaimed(op))
	case wire.Code_LOCK_DELAY:
		return s.onlyIf(s.owner == nil && len(s.shares) == 0 && s.delayedUntil+s.sharedDelay > 0)
	case wire.Code_LIMIT_REACHED:
		return s.onlyIf(reentrant && full)
	case wire.Code_OWNERSHIP_LOST:
		return s.onlyIf(!s.ownedBy(op, c.Handle) || s.fence != c.Fence)
	}
	return nil
}

// learn takes what the reply says about the hold.
func (s lockState) learn(r *wire.Reply) []lockState {
	fresh := s.fence == 0
	if r.GetHolds() != s.holds || fresh && r.GetFence() <= s.maxFence || !s.fenceMatches(r.GetFence()) {
		return nil
	}
	s.fence = r.GetFence()
	s.maxFence = max(s.maxFence, s.fence)
	return s.onlyIf(true)
}

// localGrant grants the lock in the tenure of its owner.
func (s lockState) localGrant(op *operation, c *wire.Lock) []lockState {
	granted := s
	granted.tenant = op.local.handle
	possible := s.ownedBy(op, c.Handle) && s.tenant == 0
	switch fence := op.local.fence; {
	case op.reply == nil && possible:
		granted.maxFence = max(s.maxFence, fence)
		return []lockState{granted, s}
	case op.reply == nil:
		return s.onlyIf(true)
	case possible && fence > s.maxFence:
		granted.maxFence = fence
		return granted.onlyIf(true)
	}
	return nil
}

func (s lockState) localRelease(op *operation, c *wire.Unlock) []lockState {
	released := s
	released.tenant = 0
	possible := s.ownedBy(op, c.Handle) && s.tenant == op.local.handle
	switch {
	case op.reply == nil && possible:
		return []lockState{released, s}
	case op.reply == nil:
		return s.onlyIf(true)
	}
	return released.onlyIf(possible)
}

func (s lockState) unlock(op *operation, c *wire.Unlock) []lockState {
	match := s.ownedBy(op, c.Handle) && s.fenceMatches(c.Fence) && s.tenant == 0
	if op.reply == nil {
		if match {
			return append(s.release(), s)
		}
		return s.onlyIf(true)
	}
	switch op.reply.GetCode() {
	case wire.Code_OK:
		if match && op.reply.GetHolds() == s.holds-1 && op.reply.GetFence() == c.Fence {
			return s.release()
		}
		return nil
	case wire.Code_NOT_HELD: // a set is known by its fence
		return s.onlyIf(!s.ownedBy(op, c.Handle) || op.of != nil && s.fence != c.Fence)
	case wire.Code_OWNERSHIP_LOST:
		return s.onlyIf(s.ownedBy(op, c.Handle) && s.fence != c.Fence)
	}
	return nil
}

func (s lockState) release() []lockState {
	if s.holds--; s.holds == 0 {
		return s.free(0).onlyIf(true)
	}
	return s.onlyIf(true)
}

// withdraw withdraws a place in the queue, which this model does not contain, or
// releases a hold that was granted by that Lock.
func (s lockState) withdraw(op *operation) []lockState {
	if i := s.shareOf(op.withdraws); i >= 0 {
		return s.less(op, i)
	}
	granted := s.owner != nil && op.withdraws != nil && s.grant == op.withdraws
	r := op.reply
	switch {
	case r == nil && granted:
		return append(s.release(), s)
	case r == nil:
		return s.onlyIf(true)
	case r.GetCode() == wire.Code_NOT_HELD || r.GetFence() == 0:
		return s.onlyIf(!granted)
	case r.GetCode() == wire.Code_OK && granted && s.fenceMatches(r.GetFence()):
		return s.release()
	}
	return nil
}

func (s lockState) proclaim(op *operation, c *wire.Proclaim) []lockState {
	match := s.ownedBy(op, c.Handle) && s.fenceMatches(c.Fence)
	switch {
	case op.reply == nil:
		return s.onlyIf(true)
	case op.reply.GetCode() == wire.Code_OK:
		return s.onlyIf(match && op.reply.GetHolds() == s.holds)
	case op.reply.GetCode() == wire.Code_NOT_HELD:
		return s.onlyIf(!s.ownedBy(op, c.Handle))
	}
	return s.onlyIf(s.fence != c.Fence)
}
