package sim

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// maxHoldOf returns after what time the hold ends that an operation may be granted; 0: it does not end in time.
func maxHoldOf(op *operation) time.Duration {
	if op == nil {
		return 0
	}
	switch c := op.command.GetOp().(type) {
	case *wire.Command_Lock:
		return time.Duration(c.Lock.MaxHold)
	case *wire.Command_Acquire:
		return time.Duration(c.Acquire.MaxHold)
	}
	return 0
}

// bounded returns the operation if what it is granted ends in time, else nil.
func (op *operation) bounded() *operation {
	if maxHoldOf(op) == 0 {
		return nil
	}
	return op
}

// earliestEnd is when a hold may end by its MaxHold at the earliest: at the deadline on which its holder relies.
func (op *operation) earliestEnd() time.Duration {
	d := maxHoldOf(op)
	switch {
	case d == 0:
		return forever
	case op.session.coarseClocks:
		return 0
	case op.end == nil: // no process knows of the grant
		return op.invokedTime + d - d/50
	}
	p := op.end.program
	return p.startedAt + p.simulatedTime(op.end.until)
}

// endedBy returns the end of the lock-delay that follows if the hold that the operation was granted has ended by its MaxHold
// by a time: 0 for none, else the earliest possible time. ended: it may have.
func (op *operation) endedBy(at time.Duration) (until time.Duration, ended bool) {
	switch earliest, delay := op.earliestEnd(), op.session.lockDelay; {
	case earliest > at:
		return 0, false
	case delay == 0:
		return 0, true
	case op.session.coarseClocks:
		return 1, true
	default:
		return max(1, earliest+delay-delay/50), true
	}
}

// extend is an Extend, which has no effect on what is held.
func (s lockState) extend(op *operation, c *wire.Extend) []lockState {
	match := s.ownedBy(op, c.Handle) && s.fenceMatches(c.Fence) && s.grant.bounded() != nil
	if c.Share != 0 {
		i := slices.IndexFunc(s.shares, func(sh sharedHold) bool {
			return sh.owner == op.session && sh.process == op.incarnation && sh.number == c.Share
		})
		match = i >= 0 && s.shares[i].bounded != nil
	}
	switch op.reply.GetCode() {
	case wire.Code_OK:
		return s.onlyIf(match)
	case wire.Code_NOT_HELD, wire.Code_OWNERSHIP_LOST:
		return s.onlyIf(!match)
	}
	return s.onlyIf(op.reply == nil)
}

func (s permitState) extend(op *operation, c *wire.Extend) []permitState {
	match := slices.ContainsFunc(s.acquisitions, func(t acquisition) bool {
		return t.owner == op.session && (t.fence == 0 || t.fence == c.Fence) && t.grant.bounded() != nil
	})
	switch op.reply.GetCode() {
	case wire.Code_OK:
		return s.onlyIf(match)
	case wire.Code_NOT_HELD:
		return s.onlyIf(!match)
	}
	return s.onlyIf(op.reply == nil)
}
