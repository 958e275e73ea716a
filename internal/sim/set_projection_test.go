package sim

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// projections are the operations on sets, as operations on each of their names: the model of a lock has no other locks. That all
// names are granted together, the audit checks.
type projections struct {
	ops     map[projection]*operation
	byFence map[uint64]*operation // the LockSets that were granted
}

type projection struct {
	op   *operation
	name string
}

func newProjections(h *clientHistory) *projections {
	p := &projections{ops: make(map[projection]*operation), byFence: make(map[uint64]*operation)}
	for _, op := range h.operations {
		if op.command.GetLockSet() != nil && op.reply.GetCode() == wire.Code_OK {
			p.byFence[op.reply.GetFence()] = op
		}
	}
	return p
}

// on returns the operation as one on a lock, or nil if it is none.
func (p *projections) on(name string, op *operation) *operation {
	of := op
	switch {
	case op == nil || op.ineffective():
		return nil
	case op.command.GetUnlockSet() != nil:
		of = p.byFence[op.command.GetUnlockSet().GetFence()]
	case op.command.GetExtend().GetSet():
		of = p.byFence[op.command.GetExtend().GetFence()]
	case op.withdraws != nil:
		of = op.withdraws
	}
	set := of.lockSet()
	if set == nil || !slices.Contains(set.Names, name) && !slices.Contains(set.Shared, name) {
		return nil
	}
	key := projection{op, name}
	if p.ops[key] == nil {
		p.ops[key] = p.project(op, of, name)
	}
	return p.ops[key]
}

// lockSet returns the request that the operation is, or nil.
func (op *operation) lockSet() *wire.LockSet {
	if op == nil {
		return nil
	}
	return op.command.GetLockSet()
}

// project makes an operation on a name of the set that was requested by of.
func (p *projections) project(op, of *operation, name string) *operation {
	set, one := of.lockSet(), *op
	one.of = set
	fence, share := of.reply.GetFence(), uint64(0)
	if i := slices.Index(set.Shared, name); i >= 0 && fence != 0 {
		share = fence - uint64(len(set.Shared)) + uint64(i)
		fence = of.reply.GetSet().GetFences()[i]
	}
	switch {
	case op == of:
		one.command = &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
			Name: name, Session: set.Session, Handle: set.Handle, Shared: slices.Contains(set.Shared, name), Wait: set.Wait, MaxHold: set.MaxHold,
		}}}
	case op.command.GetUnlockSet() != nil:
		one.command = &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{
			Name: name, Session: set.Session, Handle: set.Handle, Fence: fence, Share: share,
		}}}
	case op.command.GetExtend() != nil:
		one.command = &wire.Command{Op: &wire.Command_Extend{Extend: &wire.Extend{
			Name: name, Session: set.Session, Handle: set.Handle, Fence: fence, Share: share, MaxHold: op.command.GetExtend().MaxHold,
		}}}
	default:
		one.withdraws = p.on(name, op.withdraws)
	}
	if op.reply.GetCode() == wire.Code_OK && op.reply.GetFence() != 0 {
		one.reply = proto.CloneOf(op.reply)
		one.reply.Fence, one.reply.Share = fence, share
	}
	return &one
}

// markSets notes the single requests that a waiting set may have kept from a lock that is free, or shared: the model has no sets
// that wait.
func (h *clientHistory) markSets(op *operation) {
	c := op.command.GetLock()
	if c == nil || c.Election || c.Wait {
		return
	}
	for _, other := range h.operations {
		set := other.lockSet()
		if set.GetWait() && (slices.Contains(set.Names, c.Name) || slices.Contains(set.Shared, c.Name)) &&
			other.invokedAt < op.returnedAt && op.invokedAt < other.returnedAt {
			op.contended = true
		}
	}
}
