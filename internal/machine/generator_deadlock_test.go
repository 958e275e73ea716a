package machine

import (
	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// lockAcross asks for a lock on behalf of a session that holds another one, preferably for one of a session that waits
// for it: random names alone close few cycles.
func (g *generator) lockAcross(r *reference.Model) *wire.Command {
	c := g.lock(r).GetLock()
	c.Shared, c.Wait, c.Fence, c.Reentrant, c.Handle = g.chance(30), !g.chance(3), 0, false, 2+g.rand.Uint64N(2)
	c.Lingering, c.RefuseDeadlock, c.MaxHold = g.chance(5), g.chance(80), 0
	owners := make(map[*reference.Lock][]wire.ID)
	var all, closing [][2]wire.ID // sessions; the first one waits, or is to wait, for the second one
	of := make(map[wire.ID][]*reference.Lock)
	for _, l := range r.Locks {
		if l.Job != "" {
			continue
		}
		if l.Owner != nil {
			owners[l] = append(owners[l], l.Owner.Session)
		}
		for _, sh := range l.Live() {
			owners[l] = append(owners[l], sh.Session)
		}
		for _, owner := range owners[l] {
			of[owner] = append(of[owner], l)
		}
	}
	for _, l := range r.Locks {
		for _, owner := range owners[l] {
			all = append(all, [2]wire.ID{owner, owner})
			for _, p := range l.Queue {
				if p.Session != owner && len(of[p.Session]) > 0 {
					closing = append(closing, [2]wire.ID{owner, p.Session})
				}
			}
		}
	}
	if len(all) == 0 {
		return &wire.Command{Op: &wire.Command_Lock{Lock: c}}
	}
	pair := [2]wire.ID{all[g.rand.IntN(len(all))][0], all[g.rand.IntN(len(all))][0]}
	if len(closing) > 0 && g.chance(85) {
		pair = closing[g.rand.IntN(len(closing))]
	}
	if further := pair[1]; g.chance(30) { // one step more, if there is one
		for _, next := range closing {
			if next[0] == further {
				pair[1] = next[1]
			}
		}
	}
	wanted := of[pair[1]][g.rand.IntN(len(of[pair[1]]))]
	c.Session, c.Name, c.Election, c.Value = pair[0][:], wanted.Name, wanted.Election, nil
	if c.Election {
		c.Shared, c.Value = false, g.value(MaxCandidate)
	}
	return &wire.Command{Op: &wire.Command_Lock{Lock: c}}
}
