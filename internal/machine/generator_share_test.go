package machine

import (
	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// lockShared asks for a share, often of few locks, so that there are phases with several and queues of both kinds.
func (g *generator) lockShared(r *reference.Model) *wire.Command {
	c := g.lock(r).GetLock()
	c.Shared, c.Election, c.Fence = true, g.chance(1), 0
	if c.Value = nil; g.chance(80) {
		c.Name = string(rune('a' + g.rand.IntN(3)))
	}
	if l, sh := g.share(r, g.chance(30)); l != nil && g.chance(40) { // re-enter, or claim
		c.Name, c.Session, c.Handle = l.Name, sh.Session[:], sh.Handle
		if !sh.Unclaimed && g.chance(80) {
			c.Share, c.Reentrant = sh.Number, g.chance(95)
		}
	} else if l := g.held(r, g.chance(50)); l != nil && g.chance(10) { // of its own exclusive hold
		c.Name, c.Election, c.Session, c.Handle = l.Name, l.Election, l.Owner.Session[:], l.Owner.Handle
	}
	if g.chance(3) {
		c.Share = g.rand.Uint64N(r.Granted + 1)
	}
	return &wire.Command{Op: &wire.Command_Lock{Lock: c}}
}

func (g *generator) unlockShared(r *reference.Model) *wire.Command {
	c := &wire.Unlock{Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Share: r.Granted, Election: g.chance(2)}
	if l, sh := g.share(r, g.chance(3)); l != nil && g.chance(95) {
		c.Name, c.Session, c.Handle, c.Fence, c.Share = l.Name, sh.Session[:], sh.Handle, l.SharedFence, sh.Number
		if g.chance(5) {
			c.Share--
		}
	}
	c.Trace = g.trace()
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: c}}
}

func (g *generator) downgrade(r *reference.Model) *wire.Command {
	c := &wire.Downgrade{Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Fence: r.Granted, Trace: g.trace()}
	if l := g.held(r, g.chance(5)); l != nil && g.chance(95) {
		c.Name, c.Session, c.Handle, c.Fence = l.Name, l.Owner.Session[:], l.Owner.Handle, l.Fence
		if g.chance(5) {
			c.Fence--
		}
	}
	return &wire.Command{Op: &wire.Command_Downgrade{Downgrade: c}}
}

// share returns a share that is held, preferably as asked: left by a process that is gone, or not; nil: there is none.
func (g *generator) share(r *reference.Model, left bool) (*reference.Lock, reference.Share) {
	type of struct {
		lock  *reference.Lock
		share reference.Share
	}
	var all []of
	for _, l := range r.Locks {
		for _, sh := range l.Live() {
			if sh.Unclaimed == left {
				all = append(all, of{l, sh})
			}
		}
	}
	if len(all) == 0 {
		return nil, reference.Share{}
	}
	at := all[g.rand.IntN(len(all))]
	return at.lock, at.share
}
