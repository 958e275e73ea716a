package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/inbox"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Further groups. In a third of the worlds an operator creates some. Each is a simulation of its own, with its members, programs and
// checkers, in the world of the default group: its members are on the same hosts, so that they share processes, directories, clocks and the network.

// groupStreams is the first random stream of a further group. Each has as many streams.
const groupStreams = 100

// chooseGroups draws what operators do with further groups.
func (sim *simulation) chooseGroups() {
	rng := sim.groupsRNG()
	if _, regression := regressionSeeds[sim.seed]; rng.IntN(3) > 0 || regression {
		return
	}
	for i := range 1 + rng.IntN(2) {
		sim.plans = append(sim.plans, sim.newPlan(rng, fmt.Sprint("group", i)))
	}
	sim.disks.rng = sim.crashRNG()
	sim.rests = rand.New(rand.NewPCG(sim.seed, 9)).IntN(2) == 0
}

// budgets returns what the further groups of a process share: in half of the worlds so little that logs are truncated for what
// other groups have.
func (sim *simulation) budgets() core.Budgets {
	if sim.seed%2 == 0 {
		return core.NewBudgets()
	}
	return core.Budgets{Inboxes: inbox.NewBudget(), Logs: core.NewLogs(16<<10, 64<<10, 2<<10)}
}

// isFurther reports whether this is a further group.
func (sim *simulation) isFurther() bool { return sim.record != nil }

// label is what the lines of a further group begin with.
func (sim *simulation) label() string {
	if sim.record == nil {
		return ""
	}
	return fmt.Sprintf("group %d: ", sim.record.Number)
}

// groups returns the default group, and the further ones that exist. It is called for the default one.
func (sim *simulation) groups() []*simulation {
	if len(sim.further) == 0 {
		return []*simulation{sim}
	}
	return append([]*simulation{sim}, slices.DeleteFunc(slices.Clone(sim.further), func(g *simulation) bool { return g.deleted })...)
}

// firstState returns the state with which the group begins.
func (sim *simulation) firstState() []wire.Change {
	if sim.record != nil {
		return machine.FirstStateOf(sim.record)
	}
	return machine.FirstState(sim.firstLevel)
}

// pauseOfPrograms is how many times longer programs pause in a world with several groups, so that it does not have more to check.
func (sim *simulation) pauseOfPrograms() time.Duration {
	pause := time.Duration(1 + len(sim.plans))
	if sim.rests && !sim.draining { // and what is to be checked comes from more simulated time
		pause *= 2
	}
	return pause
}

// noteGroups creates the groups that the default one has created in its last entry, and ends those that it has dropped.
func (sim *simulation) noteGroups() {
	if sim.isFurther() || sim.history.oracle.Directory() == sim.list {
		return
	}
	sim.list = sim.history.oracle.Directory()
	for _, r := range sim.list.Groups { // a group may be created before another one is dropped in the same entry
		if int(r.Number) == len(sim.further)+1 {
			sim.further = append(sim.further, sim.newFurther(r))
		}
	}
	for _, g := range sim.further {
		if !g.deleted && sim.list.Dropped(g.record.Number) {
			g.drop()
		}
	}
}

// newFurther returns a further group that has just been created.
func (sim *simulation) newFurther(r *fact.GroupRecord) *simulation {
	g := newGroup(sim.world, groupStreams*uint64(r.Number))
	g.record, g.faults, g.standbys = r, sim.faults, sim.standbys
	g.trace("created as %q, voters %v, standbys %v, fences from %d", r.Name, r.Voters, r.Standbys, r.Fences)
	g.faults.sim, g.faults.clients, g.faults.tasks, g.faults.liar = g, 0, false, false
	for _, m := range sim.members {
		further := newSimMember(g, m.n)
		further.host, further.of = m.host, m
		g.members = append(g.members, further)
	}
	if sim.rests {
		g.beginRests()
	}
	g.history, g.clients = newHistory(g), newClientHistory(g)
	for n := range sim.clients.removals { // order: a set
		g.clients.removals[n] = true
	}
	g.history.fence, g.history.audit.fence = sim.deletedFences, sim.deletedFences
	return g
}

// isLeaving reports whether the removal of the program's member is requested.
func (p *program) isLeaving() bool { return p.leaving || p.of != nil && p.leaveRequested }

// groupsConverged is converged for the further groups: those exist that are to, and all members have the same part in them.
func (sim *simulation) groupsConverged() bool {
	if sim.isFurther() {
		return sim.followed()
	}
	for _, p := range sim.plans {
		if !p.done() {
			return false
		}
	}
	for _, g := range sim.further {
		if g.deleted && g.isHosted() || !g.deleted && !g.converged() {
			return false
		}
	}
	return true
}

// drop ends a group that the default one has dropped.
func (sim *simulation) drop() {
	sim.trace("deleted, fences up to %d", sim.history.audit.fence)
	sim.deleted = true
	sim.deletedFences = max(sim.deletedFences, sim.history.audit.fence, sim.history.fence)
	for g := range sim.fences { // order: a maximum
		sim.deletedFences = max(sim.deletedFences, g.fence)
	}
}

// checkLogs checks that a member that is at rest has the logs of the groups that exist, and no others.
func (sim *simulation) checkLogs(proc *process) {
	exist := 0
	for _, g := range sim.groups()[1:] {
		exist += btoi(proc.hosted.logs[g.record.Number] != nil)
	}
	if exist != len(proc.hosted.logs) || exist != len(sim.groups())-1 {
		sim.fail("member %d has the logs of groups %v, and %d exist", proc.n, proc.hosted.numbers(), len(sim.groups())-1)
	}
}

// groupCounts counts further groups and what happened in them, for the summary.
type groupCounts struct {
	created, deleted, afterDeletion, refused, followed, forgotten, entries, outcomes, grants int
	quiet                                                                                    quietCounts
	disks                                                                                    diskCounts
}

func (c *groupCounts) add(g *simulation) {
	c.created++
	c.deleted += btoi(g.deleted)
	c.afterDeletion += btoi(g.record.Fences > 0 && len(g.fences) > 0)
	c.refused += g.refusedSeals
	c.followed += g.follows
	c.entries += len(g.history.reference.results)
	c.outcomes += g.history.reference.compared
	c.grants += len(g.fences)
	c.quiet.add(g.quiet.counts)
}

func (c groupCounts) occurred() bool {
	return c.created > 0 && c.grants > 0 && c.deleted > 0 && c.afterDeletion > 0 && c.refused > 0 && c.followed > 0 && c.forgotten > 0 && c.quiet.occurred() && c.disks.occurred()
}

// isHosted reports whether a member still has the log of the group.
func (sim *simulation) isHosted() bool {
	return slices.ContainsFunc(sim.remaining(), func(m *simMember) bool {
		return m.process != nil || m.of.process == nil || m.of.process.hosted.logs[sim.record.Number] != nil
	})
}

// seal is the end of a further group in its log.
type seal struct {
	fence uint64   // the largest granted before
	holds []string // which stand still
}

// noteSeal checks that nothing is granted or lost in a sealed group: no time passes there.
func (h *history) noteSeal() {
	if !h.sim.isFurther() || !h.oracle.Following().Sealed {
		return
	}
	now := &seal{fence: h.audit.fence, holds: slices.Clone(h.holds)}
	if h.seal == nil {
		h.seal = now
		h.sim.trace("sealed at entry %d, %d granted", h.last(), h.oracle.Following().Fences)
	}
	if now.fence != h.seal.fence || !slices.Equal(now.holds, h.seal.holds) {
		h.sim.fail("the group is sealed, and has %+v after %+v", *now, *h.seal)
	}
}

// groupDeleted ends a program whose group is sealed.
func (c *simCall) groupDeleted() {
	if c.op != nil {
		c.op.noEffect = true
	}
	c.finish()
	c.program.process.following = false // what the process had submitted to follow members is refused as well
	c.program.terminate()
}
