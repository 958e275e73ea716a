package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// groupPlan is what an operator does with a further group: creates it, and in some worlds deletes it and creates another one, of that
// name or not.
type groupPlan struct {
	sim       *simulation
	rng       *rand.Rand
	name      string
	at        time.Duration // when the next command is due
	group     *simulation   // nil: to be created
	deletions int           // that are to come
	gone      bool          // after the last of them, no further group is created
	busy      bool          // a command is under way
}

// newPlan draws what an operator does.
func (sim *simulation) newPlan(rng *rand.Rand, name string) *groupPlan {
	p := &groupPlan{sim: sim, rng: rng, name: name}
	if rng.IntN(2) == 0 { // else from the start
		p.at = time.Duration(rng.Int64N(int64(15 * time.Second)))
	}
	if rng.IntN(2) == 0 {
		p.deletions, p.gone = 1+rng.IntN(2), rng.IntN(3) == 0
	}
	return p
}

// groupsRNG returns a random stream for what is decided about groups.
func (sim *simulation) groupsRNG() *rand.Rand { return rand.New(rand.NewPCG(sim.seed, 7)) }

// done reports whether nothing is left to do.
func (p *groupPlan) done() bool { return p.deletions == 0 && (p.gone || p.group != nil) }

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
	switch {
	case p.group == nil && p.sim.named(p.name) != nil:
		p.group = p.sim.named(p.name)
		p.at = p.sim.now + time.Second + time.Duration(p.rng.Int64N(int64(8*time.Second)))
	case p.group != nil && p.group.deleted:
		p.group = nil
		if p.deletions--; p.rng.IntN(2) == 0 {
			p.name += "-next"
		}
	case p.busy || p.sim.now < p.at:
	case p.group == nil:
		p.create()
	default:
		p.seal()
	}
}

func (p *groupPlan) create() {
	by := p.sim.registeredProgram()
	if by == nil {
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

// seal has a process seal the group. Without force that is refused while anything is held.
func (p *groupPlan) seal() {
	if by := p.group.registeredProgram(); by != nil {
		p.submit(by, &wire.Command{Op: &wire.Command_SealGroup{SealGroup: &wire.SealGroup{Force: p.rng.IntN(3) > 0}}})
	}
}

func (p *groupPlan) submit(by *program, c *wire.Command) {
	p.busy = true
	by.submit(c, true, func(r *wire.Reply) {
		p.busy = false
		by.sim.refusedSeals += btoi(r.GetCode() == wire.Code_LOCKED)
	})
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
