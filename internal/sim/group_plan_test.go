package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// groupPlan is what an operator does with a further group.
type groupPlan struct {
	sim     *simulation
	rng     *rand.Rand
	name    string
	create  time.Duration // when
	created uint32        // number; 0: not yet
	busy    bool          // a command is under way
}

// groupsRNG returns a random stream for what is decided about groups.
func (sim *simulation) groupsRNG() *rand.Rand { return rand.New(rand.NewPCG(sim.seed, 7)) }

// done reports whether nothing is left to do.
func (p *groupPlan) done() bool { return p.created > 0 }

// pursue carries the plan out, until it is done.
func (p *groupPlan) pursue() {
	p.sim.schedule(time.Duration(20+p.rng.IntN(200))*time.Millisecond, func() {
		if p.step(); !p.done() {
			p.pursue()
		}
	})
}

// step submits the next command.
func (p *groupPlan) step() {
	if g := p.sim.named(p.name); g != nil {
		p.created = g.record.Number
		return
	}
	by := p.sim.registeredProgram()
	if by == nil || p.busy || p.sim.now < p.create {
		return
	}
	if by.gateway.level() < wire.LevelGroups {
		by.raise()
		return
	}
	conf := by.core.Status().Membership
	p.submit(by, &wire.Command{Op: &wire.Command_CreateGroup{CreateGroup: &wire.CreateGroup{
		Name: p.name, Voters: slices.Sorted(slices.Values(conf.GetVoters())), Standbys: slices.Sorted(slices.Values(conf.GetLearners())),
	}}})
}

func (p *groupPlan) submit(by *program, c *wire.Command) {
	p.busy = true
	by.submit(c, true, func(*wire.Reply) { p.busy = false })
	p.sim.schedule(2*time.Second, func() { p.busy = false }) // the outcome may be lost with the process
}

// named returns the further group of that name that exists; nil: there is none.
func (sim *simulation) named(name string) *simulation {
	for _, g := range sim.groups()[1:] {
		if g.record.Name == name {
			return g
		}
	}
	return nil
}
