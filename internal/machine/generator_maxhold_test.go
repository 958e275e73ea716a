package machine

import (
	"math"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// maxHold is a time after which a hold ends, often about as long as a session.
func (g *generator) maxHold() int64 {
	switch g.rand.IntN(40) {
	case 0:
		return g.rand.Int64() - math.MaxInt64/2
	case 1:
		return []int64{MinMaxHold, MaxMaxHold, MinMaxHold - 1, MaxMaxHold + 1, 0}[g.rand.IntN(5)]
	}
	return 1 + g.rand.Int64N(4*second) + MinMaxHold
}

// extend moves the end of a hold that ends in time, if there is one.
func (g *generator) extend(r *reference.Model) *wire.Command {
	c := &wire.Extend{
		Space: wire.Space(g.rand.IntN(3)), Name: g.name(), Session: g.session(r), Handle: g.rand.Uint64N(2), Fence: g.rand.Uint64N(r.Granted + 1),
	}
	if l := g.held(r, g.chance(30)); l != nil {
		c.Space, c.Name, c.Session, c.Handle, c.Fence = wire.Space_LOCK, l.Name, l.Owner.Session[:], l.Owner.Handle, l.Fence
	}
	if all := reference.Ending(r); len(all) > 0 && g.chance(80) {
		c = all[g.rand.IntN(len(all))]
	}
	if g.chance(5) {
		c.Fence, c.Share = c.Fence-1, g.rand.Uint64N(r.Granted+1)
	}
	if c.MaxHold = g.maxHold(); g.chance(2) {
		c.Space = wire.Space(g.rand.IntN(4))
	}
	return &wire.Command{Op: &wire.Command_Extend{Extend: c}}
}
