package machine

import (
	"math"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// The commands of the random logs about checks.

func (g *generator) checkName() string {
	if g.chance(5) {
		return g.name()
	}
	return []string{"disk", "http", "gossip", "process"}[min(3, g.rand.IntN(22)/9+g.rand.IntN(21)/20)]
}

func (g *generator) setCheck() *wire.Command {
	c := &wire.SetCheck{Name: g.checkName(), Register: g.chance(60), ForClient: g.chance(40), State: wire.CheckState(g.rand.Int32N(2))}
	switch {
	case g.chance(20):
		c.State = wire.CheckState_CRITICAL
	case g.chance(1):
		c.State = 3
	}
	switch {
	case g.chance(1):
		c.Ttl = g.rand.Int64() - math.MaxInt64/2
	case g.chance(60):
		c.Ttl = (1 + g.rand.Int64N(4)) * second
	}
	return &wire.Command{Op: &wire.Command_SetCheck{SetCheck: c}}
}

func (g *generator) dropCheck() *wire.Command {
	return &wire.Command{Op: &wire.Command_DropCheck{DropCheck: &wire.DropCheck{Name: g.checkName()}}}
}

func (g *generator) gossip(r *reference.Model) *wire.Command {
	c := &wire.ReportGossip{Member: g.member(r), Alive: g.chance(65), Term: term}
	if g.chance(5) {
		c.Term++
	}
	c.Boot = g.boots[c.Member]
	if g.chance(20) {
		c.Boot += g.rand.Uint64N(3) - 1
	}
	return &wire.Command{Op: &wire.Command_ReportGossip{ReportGossip: c}}
}

func (g *generator) process(r *reference.Model) *wire.Command {
	c := &wire.ReportProcess{Member: g.member(r), Crashed: g.chance(40), Term: term}
	if g.chance(5) {
		c.Term++
	}
	c.Boot = g.boots[c.Member]
	if g.chance(20) {
		c.Boot += g.rand.Uint64N(3) - 1
	}
	return &wire.Command{Op: &wire.Command_ReportProcess{ReportProcess: c}}
}
