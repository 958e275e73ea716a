package machine

import (
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// lockSet asks for a few of the names that single locks have, in either mode.
func (g *generator) lockSet(r *reference.Model) *wire.Command {
	c := &wire.LockSet{Session: g.session(r), Handle: g.rand.Uint64N(2), Wait: g.chance(75), RefuseDeadlock: g.chance(40)}
	shared := []int{10, 50, 100}[g.rand.IntN(3)]   // percent
	first := []rune{'a', 'a', 'c'}[g.rand.IntN(3)] // single locks have only the first four
	for _, i := range g.rand.Perm(4)[:1+g.rand.IntN(4)] {
		if name := string(first + rune(i)); g.chance(shared) {
			c.Shared = append(c.Shared, name)
		} else {
			c.Names = append(c.Names, name)
		}
	}
	if left := g.set(r, true); left != nil && g.chance(75) { // claim, perhaps in another mode
		c.Session, c.Handle, c.Names, c.Shared = left.Session[:], left.Handle, nil, nil
		for _, p := range left.Parts {
			if p.Shared != g.chance(10) {
				c.Shared = append(c.Shared, p.Name)
			} else {
				c.Names = append(c.Names, p.Name)
			}
		}
	}
	if g.chance(30) {
		c.MaxHold = g.maxHold()
	}
	if g.chance(20) {
		c.Label = g.handleLabel()
	}
	g.spoilSet(c)
	return &wire.Command{Op: &wire.Command_LockSet{LockSet: c}}
}

// spoilSet makes nonsense of some.
func (g *generator) spoilSet(c *wire.LockSet) {
	switch g.rand.IntN(80) {
	case 0:
		c.Names, c.Shared = nil, nil
	case 1:
		c.Shared = append(c.Shared, g.name())
	case 2:
		c.Names = append(c.Names, g.name())
	case 3:
		c.Names = nil
		for i := range reference.MaxSet + g.rand.IntN(2) {
			c.Names = append(c.Names, strings.Repeat("m", 1+i))
		}
		c.Wait = c.Wait && g.chance(10)
	}
}

func (g *generator) unlockSet(r *reference.Model) *wire.Command {
	c := &wire.UnlockSet{Session: g.session(r), Fence: r.Granted, Trace: g.trace()}
	if s := g.set(r, g.chance(3)); s != nil && g.chance(95) {
		c.Session, c.Fence = s.Session[:], s.Fence
		if g.chance(5) {
			c.Fence--
		}
	}
	return &wire.Command{Op: &wire.Command_UnlockSet{UnlockSet: c}}
}

// clear releases what a set waits for, if there is one.
func (g *generator) clear(r *reference.Model) *wire.Command {
	if len(r.Waiting) == 0 {
		return g.unlockSet(r)
	}
	parts := r.Waiting[g.rand.IntN(len(r.Waiting))].Parts
	for _, i := range g.rand.Perm(len(parts)) {
		if l := findLock(r, parts[i].Name); l != nil {
			if c := g.unlockOf(r, l); c != nil {
				return c
			}
		}
	}
	return g.unlockSet(r)
}

// unlockOf releases a hold of a lock; nil: there is none.
func (g *generator) unlockOf(r *reference.Model, l *reference.Lock) *wire.Command {
	for _, s := range r.Sets {
		if slices.ContainsFunc(s.Parts, func(p reference.Part) bool { return p.Name == l.Name }) && g.chance(80) {
			return &wire.Command{Op: &wire.Command_UnlockSet{UnlockSet: &wire.UnlockSet{Session: s.Session[:], Fence: s.Fence, Trace: g.trace()}}}
		}
	}
	c := &wire.Unlock{Name: l.Name, Trace: g.trace()}
	if live := l.Live(); len(live) > 0 {
		sh := live[g.rand.IntN(len(live))]
		c.Session, c.Share = sh.Session[:], sh.Number
	} else if l.Owner != nil {
		c.Session, c.Handle, c.Fence = l.Owner.Session[:], l.Owner.Handle, l.Fence
	} else {
		return nil
	}
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: c}}
}

// pass asks for a single name of a set that waits, of those that no owner has, so that the set is passed over.
func (g *generator) pass(r *reference.Model) *wire.Command {
	c := &wire.Lock{Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Shared: g.chance(40), Wait: g.chance(30), Lingering: g.chance(20)}
	if len(r.Waiting) > 0 {
		parts := r.Waiting[g.rand.IntN(len(r.Waiting))].Parts
		c.Name = parts[g.rand.IntN(len(parts))].Name
		for _, p := range parts {
			if l := findLock(r, p.Name); l != nil && l.Owner == nil && len(l.Queue) == 0 {
				c.Name, c.Shared = p.Name, g.chance(30)
			}
		}
	}
	g.claimAwaited(r, c)
	return &wire.Command{Op: &wire.Command_Lock{Lock: c}}
}

// claimAwaited claims what an attached session was left of the names that sets wait for, if there is any.
func (g *generator) claimAwaited(r *reference.Model, c *wire.Lock) {
	for _, s := range r.Waiting {
		for _, p := range s.Parts {
			l := findLock(r, p.Name)
			if l.Owner != nil && l.Unclaimed && g.chance(50) {
				c.Name, c.Session, c.Shared, c.Lingering = p.Name, l.Owner.Session[:], g.chance(40), g.chance(70)
			}
			for _, sh := range l.Live() {
				if sh.Unclaimed && g.chance(50) {
					c.Name, c.Session, c.Shared, c.Lingering = p.Name, sh.Session[:], g.chance(70), g.chance(70)
				}
			}
		}
	}
}

func findLock(r *reference.Model, name string) *reference.Lock {
	i := slices.IndexFunc(r.Locks, func(l *reference.Lock) bool { return !l.Election && l.Name == name })
	if i < 0 {
		return nil
	}
	return r.Locks[i]
}

// set returns a set that is held, as asked: left by a process that is gone, or not; nil: there is none.
func (g *generator) set(r *reference.Model, left bool) *reference.Set {
	var all []*reference.Set
	for _, s := range r.Sets {
		if s.Unclaimed == left {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[g.rand.IntN(len(all))]
}
