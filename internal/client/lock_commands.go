package client

import "github.com/conclave-go/conclave/internal/wire"

// The commands of a handle.

func (l *Lock) lockCommand(lease *Lease, held *Hold, w wanted) *wire.Command {
	if l.parts != nil {
		return l.lockSetCommand(lease, w.wait)
	}
	if l.terms != nil {
		return l.runJobCommand(lease)
	}
	cmd := &wire.Lock{
		Name: l.name, Session: lease.id[:], Handle: l.number,
		Reentrant: l.reentrant && !(w.fresh && held == nil), Limit: l.limit, Wait: w.wait,
		Election: l.space == wire.Space_ELECTION, Value: w.value, Shared: w.shared, MaxHold: int64(l.maxHold),
		RefuseDeadlock: l.refuse && w.wait,
	}
	if held != nil {
		if g := held.now(); g.share != 0 {
			cmd.Share = g.share
		} else {
			cmd.Fence = g.fence
		}
	}
	if l.label != "" && l.client.group.Level() >= wire.LevelLabel {
		cmd.Label = []byte(l.label)
	}
	return &wire.Command{Op: &wire.Command_Lock{Lock: cmd}}
}

func (l *Lock) releaseCommand(lease *Lease, g grant) *wire.Command {
	if l.parts != nil {
		return unlockSetCommand(lease, g.fence)
	}
	if l.terms != nil {
		return l.endRunCommand(lease, g.fence)
	}
	return unlockCommand(l.name, lease, l.number, g, l.space == wire.Space_ELECTION)
}

func unlockCommand(name string, lease *Lease, handle uint64, g grant, election bool) *wire.Command {
	cmd := &wire.Unlock{Name: name, Session: lease.id[:], Handle: handle, Election: election, Share: g.share}
	if g.share == 0 {
		cmd.Fence = g.fence
	}
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: cmd}}
}

func (l *Lock) lockSetCommand(lease *Lease, wait bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_LockSet{LockSet: &wire.LockSet{
		Session: lease.id[:], Handle: l.number, Names: l.parts.exclusive, Shared: l.parts.shared, Wait: wait,
		Label: []byte(l.label), MaxHold: int64(l.maxHold), RefuseDeadlock: l.refuse && wait,
	}}}
}

func unlockSetCommand(lease *Lease, fence uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_UnlockSet{UnlockSet: &wire.UnlockSet{Session: lease.id[:], Fence: fence}}}
}
