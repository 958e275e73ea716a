package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// permitState is the model of a semaphore, as its users see it: acquisitions of
// some permits each, and permits that a lock-delay withholds.
type permitState struct {
	limit        uint32
	acquisitions []acquisition // in order of acquisition
	delayed      []delayedPermits
	maxFence     uint64 // the largest fence that is known
}

type acquisition struct {
	owner   *sessionSpan
	process wire.ID
	grant   *operation
	permits uint32
	fence   uint64 // 0: unknown
	numbers uint64 // of the permits, a bit for each; 0: unknown, or none
}

type delayedPermits struct {
	permits uint32
	numbers uint64
	until   time.Duration // at least
}

func permitModel(limit uint32) stateModel[permitState] {
	return stateModel[permitState]{
		init: permitState{limit: limit}, before: permitState.possibleStates, step: permitState.step, equal: permitState.equal, hash: permitState.hash,
		largest: func(s permitState) uint64 { return s.maxFence },
	}
}

func (s permitState) equal(o permitState) bool {
	return s.limit == o.limit && s.maxFence == o.maxFence && slices.Equal(s.acquisitions, o.acquisitions) && slices.Equal(s.delayed, o.delayed)
}

func (s permitState) hash() uint64 {
	return hashAll(hashAll(s.maxFence<<8^uint64(s.limit), s.acquisitions), s.delayed)
}

// possibleStates are the states in which the operation may find the semaphore: any
// session that holds permits may have ended.
func (s permitState) possibleStates(op *operation) []permitState {
	states := []permitState{s}
	for _, t := range s.acquisitions { // first: what has ended so is not lost with its session
		if op.dependsOn(t) {
			states = withPossibleEnd(states, t.grant, op)
		}
	}
	var seen []*sessionSpan
	for _, t := range s.acquisitions {
		if slices.Contains(seen, t.owner) {
			continue
		}
		seen = append(seen, t.owner)
		states = withPossibleEnds(states, t.owner, op, permitState.withoutSession)
	}
	return states
}

// dependsOn reports whether it matters to the operation that an acquisition may have ended by its MaxHold.
func (op *operation) dependsOn(t acquisition) bool {
	return op.command.GetAcquire() != nil || t.owner == op.session || t.owner.endedBefore(op.invokedAt) || op.withdraws != nil && t.grant == op.withdraws
}

// withPossibleEnd adds the states in which what an operation was granted has ended by its MaxHold.
func withPossibleEnd(states []permitState, grant, op *operation) []permitState {
	until, ended := grant.endedBy(op.returnedTime)
	if !ended {
		return states
	}
	next := slices.Clone(states)
	for _, s := range states {
		i := slices.IndexFunc(s.acquisitions, func(t acquisition) bool { return t.grant == grant })
		if i < 0 {
			continue
		}
		if t := s.acquisitions[i]; until > 0 {
			s.delayed = append(slices.Clone(s.delayed), delayedPermits{t.permits, t.numbers, until})
		}
		s.acquisitions = slices.Delete(slices.Clone(s.acquisitions), i, i+1)
		next = append(next, s)
	}
	return next
}

func (s permitState) withoutSession(owner *sessionSpan, until time.Duration) permitState {
	s.acquisitions, s.delayed = slices.Clone(s.acquisitions), slices.Clone(s.delayed)
	for _, t := range s.acquisitions {
		if t.owner == owner && until > 0 {
			s.delayed = append(s.delayed, delayedPermits{t.permits, t.numbers, until})
		}
	}
	s.acquisitions = slices.DeleteFunc(s.acquisitions, func(t acquisition) bool { return t.owner == owner })
	return s
}

func (s permitState) step(op *operation) []permitState {
	switch c := op.command.Op.(type) {
	case *wire.Command_Acquire:
		return s.acquire(op, c.Acquire)
	case *wire.Command_Release:
		i := slices.IndexFunc(s.acquisitions, func(t acquisition) bool {
			return t.owner == op.session && t.process == op.incarnation && (t.fence == c.Release.Fence || t.fence == 0)
		})
		return s.release(op, i)
	case *wire.Command_Withdraw:
		i := slices.IndexFunc(s.acquisitions, func(t acquisition) bool { return op.withdraws != nil && t.grant == op.withdraws })
		if op.reply.GetCode() == wire.Code_OK && op.reply.GetFence() == 0 { // it withdrew a place in the queue
			return s.onlyIf(i < 0)
		}
		return s.release(op, i)
	case *wire.Command_Extend:
		return s.extend(op, c.Extend)
	case *wire.Command_Resize:
		resized := s
		resized.limit = c.Resize.Limit
		if op.reply == nil {
			return []permitState{s, resized}
		}
		return resized.onlyIf(op.reply.GetCode() == wire.Code_OK)
	}
	return nil
}

func (s permitState) onlyIf(holds bool) []permitState {
	if holds {
		return []permitState{s}
	}
	return nil
}

// release releases acquisition i; -1 is none.
func (s permitState) release(op *operation, i int) []permitState {
	r := op.reply
	if i < 0 {
		return s.onlyIf(r == nil || r.GetCode() == wire.Code_NOT_HELD)
	}
	fits := r.GetCode() == wire.Code_OK && (s.acquisitions[i].fence == 0 || s.acquisitions[i].fence == r.GetFence())
	after := s
	after.acquisitions = slices.Delete(slices.Clone(s.acquisitions), i, i+1)
	if r == nil {
		return []permitState{s, after}
	}
	return after.onlyIf(fits)
}

func (s permitState) acquire(op *operation, c *wire.Acquire) []permitState {
	var granted []permitState
	if (c.Limit == s.limit || c.Wait) && c.Permits <= s.limit { // the limit may change while the caller waits
		granted = s.grant(op, c)
	}
	r := op.reply
	switch {
	case r == nil:
		return append(granted, s)
	case r.GetCode() == wire.Code_OK:
		return confirmGrants(granted, r, op.returnedTime)
	case r.GetCode() == wire.Code_LIMIT_MISMATCH:
		return s.onlyIf(r.GetLimit() == s.limit && (c.Limit != s.limit || c.Permits > s.limit))
	case r.GetCode() == wire.Code_LOCKED:
		return s.onlyIf(op.contended || s.free(0)-int64(c.Permits) < 0)
	case r.GetCode() == wire.Code_LOCK_DELAY:
		return s.onlyIf(len(s.delayed) > 0)
	}
	return nil
}

// grant acquires free permits, or claims an acquisition of the session's earlier
// process.
func (s permitState) grant(op *operation, c *wire.Acquire) []permitState {
	s.acquisitions = slices.Clone(s.acquisitions)
	unclaimed := slices.IndexFunc(s.acquisitions, func(t acquisition) bool {
		return t.owner == op.session && t.process != op.incarnation && t.permits == c.Permits
	})
	switch {
	case unclaimed >= 0:
		s.acquisitions = slices.Delete(s.acquisitions, unclaimed, unclaimed+1)
	case s.free(op.returnedTime) < int64(c.Permits):
		return nil
	default:
		s.delayed = slices.Clone(s.delayed)
		for s.free(0) < int64(c.Permits) { // some lock-delays have ended
			i := slices.IndexFunc(s.delayed, func(h delayedPermits) bool { return h.until <= op.returnedTime })
			s.delayed = slices.Delete(s.delayed, i, i+1)
		}
	}
	s.acquisitions = append(s.acquisitions, acquisition{owner: op.session, process: op.incarnation, grant: op, permits: c.Permits})
	return []permitState{s}
}

// confirmGrants takes what the reply, which came at that time, says about the new acquisition.
func confirmGrants(states []permitState, r *wire.Reply, at time.Duration) (fit []permitState) {
	numbers := uint64(0)
	for _, n := range r.GetSlots() {
		numbers |= 1 << n
	}
	for _, s := range states {
		last := &s.acquisitions[len(s.acquisitions)-1]
		if r.GetFence() > s.maxFence && r.GetHolds() == last.permits && s.numbers(at)&numbers == 0 {
			last.fence, last.numbers, s.maxFence = r.GetFence(), numbers, r.GetFence()
			fit = append(fit, s)
		}
	}
	return fit
}

// numbers returns those that no other acquisition may have at that time.
func (s permitState) numbers(at time.Duration) (taken uint64) {
	for _, t := range s.acquisitions {
		taken |= t.numbers
	}
	for _, h := range s.delayed {
		if h.until > at {
			taken |= h.numbers
		}
	}
	return taken
}

// free returns the available permits, including those whose lock-delay may have ended
// by at.
func (s permitState) free(at time.Duration) int64 {
	free := int64(s.limit)
	for _, t := range s.acquisitions {
		free -= int64(t.permits)
	}
	for _, h := range s.delayed {
		if h.until > at {
			free -= int64(h.permits)
		}
	}
	return free
}

// markContention marks operations during which another caller waited.
func (h *clientHistory) markContention() {
	for _, op := range h.operations {
		h.markShared(op)
		h.markSets(op)
		h.markClaims(op)
		c := op.command.GetAcquire()
		if c == nil || c.Wait {
			continue
		}
		for _, other := range h.operations {
			a := other.command.GetAcquire()
			if a.GetWait() && a.Name == c.Name && other.invokedAt < op.returnedAt && op.invokedAt < other.returnedAt {
				op.contended = true
			}
		}
	}
}
