package sim

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conclave-go/conclave/internal/wire"
)

// permitState is a semaphore as its users see it: acquisitions of some permits
// each, and permits that a lock-delay holds back.
type permitState struct {
	limit uint32
	taken []taken // by arrival in this order
	held  []heldBack
	most  uint64 // the largest fence that is known
}

type taken struct {
	by      *span
	process wire.ID
	grant   *operation
	permits uint32
	fence   uint64 // 0: nobody knows
}

type heldBack struct {
	permits uint32
	until   time.Duration // at least
}

func permitModel(limit uint32) porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{permitState{limit: limit}} },
		Step: func(state, input, _ any) (next []any) {
			op := input.(*operation)
			for _, st := range state.(permitState).partings(op) {
				for _, after := range st.step(op) {
					next = append(next, after)
				}
			}
			return next
		},
		Equal: func(a, b any) bool {
			s, t := a.(permitState), b.(permitState)
			return s.limit == t.limit && s.most == t.most && slices.Equal(s.taken, t.taken) && slices.Equal(s.held, t.held)
		},
	}
}

// partings are the states that may be when the operation comes: any of the
// sessions that have permits may have ended.
func (s permitState) partings(op *operation) []permitState {
	states := []permitState{s}
	var seen []*span
	for _, t := range s.taken {
		if slices.Contains(seen, t.by) {
			continue
		}
		seen = append(seen, t.by)
		states = endings(states, t.by, op, permitState.without)
	}
	return states
}

func (s permitState) without(by *span, delay time.Duration) permitState {
	s.taken, s.held = slices.Clone(s.taken), slices.Clone(s.held)
	for _, t := range s.taken {
		if t.by == by && delay > 0 {
			s.held = append(s.held, heldBack{t.permits, delay})
		}
	}
	s.taken = slices.DeleteFunc(s.taken, func(t taken) bool { return t.by == by })
	return s
}

func (s permitState) step(op *operation) []permitState {
	switch c := op.command.Op.(type) {
	case *wire.Command_Acquire:
		return s.acquire(op, c.Acquire)
	case *wire.Command_Release:
		i := slices.IndexFunc(s.taken, func(t taken) bool {
			return t.by == op.session && t.process == op.incarnation && (t.fence == c.Release.Fence || t.fence == 0)
		})
		return s.gone(op, i)
	case *wire.Command_Withdraw:
		i := slices.IndexFunc(s.taken, func(t taken) bool { return op.of != nil && t.grant == op.of })
		if op.reply.GetCode() == wire.Code_OK && op.reply.GetFence() == 0 { // it was a place in the queue
			return s.when(i < 0)
		}
		return s.gone(op, i)
	case *wire.Command_Resize:
		resized := s
		resized.limit = c.Resize.Limit
		if op.reply == nil {
			return []permitState{s, resized}
		}
		return resized.when(op.reply.GetCode() == wire.Code_OK)
	}
	return nil
}

func (s permitState) when(holds bool) []permitState {
	if holds {
		return []permitState{s}
	}
	return nil
}

// gone gives the acquisition at i back; -1 is none.
func (s permitState) gone(op *operation, i int) []permitState {
	r := op.reply
	if i < 0 {
		return s.when(r == nil || r.GetCode() == wire.Code_NOT_HELD)
	}
	fits := r.GetCode() == wire.Code_OK && (s.taken[i].fence == 0 || s.taken[i].fence == r.GetFence())
	after := s
	after.taken = slices.Delete(slices.Clone(s.taken), i, i+1)
	if r == nil {
		return []permitState{s, after}
	}
	return after.when(fits)
}

func (s permitState) acquire(op *operation, c *wire.Acquire) []permitState {
	var granted []permitState
	if (c.Limit == s.limit || c.Wait) && c.Permits <= s.limit { // the limit may change while one waits
		granted = s.grant(op, c)
	}
	r := op.reply
	switch {
	case r == nil:
		return append(granted, s)
	case r.GetCode() == wire.Code_OK:
		return acknowledged(granted, r)
	case r.GetCode() == wire.Code_LIMIT_MISMATCH:
		return s.when(r.GetLimit() == s.limit && (c.Limit != s.limit || c.Permits > s.limit))
	case r.GetCode() == wire.Code_LOCKED:
		return s.when(op.crowded || s.free(0)-int64(c.Permits) < 0)
	case r.GetCode() == wire.Code_LOCK_DELAY:
		return s.when(len(s.held) > 0)
	}
	return nil
}

// grant takes permits that are free, or takes an acquisition over that the
// session's former process has left.
func (s permitState) grant(op *operation, c *wire.Acquire) []permitState {
	s.taken = slices.Clone(s.taken)
	left := slices.IndexFunc(s.taken, func(t taken) bool {
		return t.by == op.session && t.process != op.incarnation && t.permits == c.Permits
	})
	switch {
	case left >= 0:
		s.taken = slices.Delete(s.taken, left, left+1)
	case s.free(op.returnedAt) < int64(c.Permits):
		return nil
	default:
		s.held = slices.Clone(s.held)
		for s.free(0) < int64(c.Permits) { // some of those held back have come free
			i := slices.IndexFunc(s.held, func(h heldBack) bool { return h.until <= op.returnedAt })
			s.held = slices.Delete(s.held, i, i+1)
		}
	}
	s.taken = append(s.taken, taken{by: op.session, process: op.incarnation, grant: op, permits: c.Permits})
	return []permitState{s}
}

// acknowledged takes what the reply says of an acquisition that has just been granted.
func acknowledged(states []permitState, r *wire.Reply) (fit []permitState) {
	for _, s := range states {
		last := &s.taken[len(s.taken)-1]
		if r.GetFence() > s.most && r.GetHolds() == last.permits {
			last.fence, s.most = r.GetFence(), r.GetFence()
			fit = append(fit, s)
		}
	}
	return fit
}

// free counts those held back as taken, but for those that may be free by then.
func (s permitState) free(by time.Duration) int64 {
	free := int64(s.limit)
	for _, t := range s.taken {
		free -= int64(t.permits)
	}
	for _, h := range s.held {
		if h.until > by {
			free -= int64(h.permits)
		}
	}
	return free
}

// crowd notes which operations have met others that wait.
func (o *outside) crowd() {
	for _, op := range o.operations {
		c := op.command.GetAcquire()
		if c == nil || c.Wait {
			continue
		}
		for _, other := range o.operations {
			a := other.command.GetAcquire()
			if a.GetWait() && a.Name == c.Name && other.called < op.returned && op.called < other.returned {
				op.crowded = true
			}
		}
	}
}
